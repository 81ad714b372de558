//! Bytes of a component that something changed: what a reader of the format meets that no toolchain
//! writes.

use fastrand::Rng;

const CHANGES_MAX: usize = 8;
/// Bytes that one change removes, repeats or puts elsewhere.
const SPAN_MAX: usize = 64;
/// Bytes with which numbers of the format begin or end, kinds of sections, and opcodes.
const BYTES: [u8; 12] = [
    0x00, 0x01, 0x0a, 0x0b, 0x10, 0x3f, 0x40, 0x60, 0x7f, 0x80, 0xfc, 0xff,
];
/// Numbers as the format writes them: 32 and 64 bits of ones, and one that is too long.
const NUMBERS: [&[u8]; 4] = [
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
    &[0x80, 0x80, 0x04],
];

/// Changes some of the bytes, or where they are.
pub(super) fn damage(bytes: &mut Vec<u8>, random: &mut Rng) {
    for _ in 0..random.usize(1..=CHANGES_MAX) {
        if bytes.is_empty() {
            return;
        }
        change(bytes, random);
    }
}

fn change(bytes: &mut Vec<u8>, random: &mut Rng) {
    let at = random.usize(..bytes.len());
    let end = bytes.len().min(at + random.usize(1..=SPAN_MAX));
    match random.u8(..8) {
        0 => bytes[at] ^= 1 << random.u8(..8),
        1 => bytes[at] = BYTES[random.usize(..BYTES.len())],
        2 => bytes[at] = bytes[at].wrapping_add(1),
        3 => insert(bytes, at, NUMBERS[random.usize(..NUMBERS.len())]),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let span = bytes[at..end].to_vec();
            insert(bytes, random.usize(..bytes.len()), &span);
        }
        6 => {
            let span = bytes[at..end].to_vec();
            insert(bytes, at, &span.repeat(random.usize(1..100)));
        }
        // The rest is missing, as of a file that is still being copied.
        _ if random.u8(..4) == 0 => bytes.truncate(at),
        _ => bytes.swap(at, end - 1),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, span: &[u8]) {
    bytes.splice(at..at, span.iter().copied());
}
