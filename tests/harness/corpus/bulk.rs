//! Batches, outcomes and output in one frame each, as no SDK writes them.

use super::contract::{self, place};
use super::imports::{IMPORTS, LOWERED};
use super::{Call, Entry, Expected, fails, refused};

/// The export, of a core function `bulk`, whose result lies at 1024: error or not, 1028 the frame,
/// 1032 its length.
pub const EXPORT: &str = r#"
  (func $bulk (param "batch" (list u8)) (result (result (list u8) (error $error)))
    (canon lift (core func $i "bulk") (memory $memory) (realloc (core func $realloc))
      (post-return (core func $i "post"))))
  (instance $bulk (export "process" (func $bulk)))
  (export "shardmill:processor/bulk@0.1.0" (instance $bulk))"#;

/// That core function with this body.
pub fn field(body: &str) -> String {
    format!(
        r#"(func (export "bulk") (param $records i32) (param $count i32) (result i32)
             (local $n i32) (local $m i32) {body} (i32.const 1024))"#
    )
}

pub(super) fn entries() -> Vec<Entry> {
    let invalid = |says| fails(Call::Process, "invalid_outcome", says);
    vec![
        Entry::new(
            "bulk-answer-outside-memory",
            "D13",
            answers_outside,
            fails(Call::Process, "trapped", "out of bounds"),
        ),
        Entry::new(
            "bulk-answer-too-long",
            "D13",
            answer_too_long,
            fails(Call::Process, "limit", "passed to the host in one call"),
        ),
        Entry::new(
            "bulk-answer-malformed",
            "D15",
            answers_malformed,
            invalid("its frame"),
        ),
        Entry::new(
            "bulk-answer-beyond-the-batch",
            "D15",
            answers_beyond,
            invalid("beyond the batch"),
        ),
        Entry::new(
            "bulk-answer-does-not-rise",
            "D15",
            || vec![answering(&failures(&[(0, 0, ""), (0, 1, "")]))],
            invalid("is not above the one before"),
        ),
        Entry::new(
            "bulk-pieces-malformed",
            "D13",
            pieces_malformed,
            fails(Call::Process, "invalid_outcome", "put-all had failed"),
        ),
        Entry::new(
            "bulk-pieces-to-nowhere",
            "D15",
            pieces_to_nowhere,
            fails(Call::Process, "misconfigured", "number"),
        ),
        Entry::new(
            "bulk-frames-held-by-one-byte",
            "D27",
            frames_held_by_one_byte,
            fails(Call::Process, "invalid_outcome", "put-all had failed"),
        ),
        Entry::new(
            "bulk-pieces-in-init",
            "D15",
            pieces_in_init,
            Expected::Harmless,
        ),
        Entry::new(
            "bulk-pieces-without-end",
            "D27",
            pieces_without_end,
            Expected::Contained,
        ),
        Entry::new(
            "bulk-place-for-the-batch-outside",
            "D13",
            place_outside,
            fails(Call::Process, "trapped", "beyond end of memory"),
        ),
        Entry::new(
            "bulk-of-another-type",
            "D7",
            other_types,
            refused("function process", "contract"),
        ),
    ]
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// An outcome with these failures: index, kind, message.
fn failures(failures: &[(u32, u32, &str)]) -> Vec<u8> {
    let count = u32::try_from(failures.len()).expect("few");
    let mut frame = numbers(&[1, count, 0, 0, 0, 0, 0]);
    for (index, kind, message) in failures {
        let length = u32::try_from(message.len()).expect("short");
        frame.extend(numbers(&[*index, *kind, length]));
        frame.extend(message.as_bytes());
    }
    frame
}

fn escaped(bytes: &[u8]) -> String {
    let escaped: Vec<_> = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
    escaped.concat()
}

/// A plugin with this in `bulk`, and these bytes from 8192 on.
fn doing(bytes: &[u8], bulk: &str, changes: &[(&str, &str)]) -> Vec<u8> {
    let length = bytes.len();
    let fill = format!("(memory.init $bytes (i32.const 8192) (i32.const 0) (i32.const {length}))");
    let data = format!(r#"(data $bytes "{}")"#, escaped(bytes));
    let fields = format!("{data} {}", field(&format!("{fill} {bulk}")));
    let mut all = vec![
        (place::LOWERED, LOWERED),
        (place::IMPORTS, IMPORTS),
        (place::WITH, r#"(with "host" (instance $host))"#),
        (place::FIELDS, &fields),
        (place::EXPORTS, EXPORT),
    ];
    all.extend(changes);
    contract::with(&all)
}

/// Answers with the frame at this place and of this length.
fn answer(at: &str, length: &str) -> String {
    format!(
        "(i32.store (i32.const 1028) (i32.const {at})) (i32.store (i32.const 1032) (i32.const {length}))"
    )
}

fn answering(frame: &[u8]) -> Vec<u8> {
    doing(frame, &answer("8192", &frame.len().to_string()), &[])
}

fn answers_outside() -> Vec<Vec<u8>> {
    let places = [("65536", "1"), ("65535", "2"), ("0", "65537"), ("-1", "1")];
    places
        .map(|(at, length)| doing(&[], &answer(at, length), &[]))
        .into()
}

fn answer_too_long() -> Vec<Vec<u8>> {
    let grow = "(drop (memory.grow (i32.const 500)))";
    vec![doing(
        &[],
        &format!("{grow} {}", answer("0", "32000000")),
        &[],
    )]
}

fn answers_malformed() -> Vec<Vec<u8>> {
    let whole = failures(&[(0, 1, "text")]);
    let changed = |at: usize, byte: u8| {
        let mut frame = whole.clone();
        frame[at] = byte;
        frame
    };
    let frames = [
        vec![1],
        numbers(&[1]),
        // Another layout.
        changed(0, 7),
        // More failures than there are.
        changed(4, 2),
        numbers(&[1, u32::MAX, 0, 0, 0, 0, 0]),
        // A commit that means nothing; an index without one.
        changed(8, 9),
        changed(12, 9),
        // Neither with nor without a time; a time without one.
        changed(16, 2),
        changed(20, 1),
        // Neither to try again nor not.
        changed(32, 2),
        // A message that is too long, too short, and no text.
        changed(36, 200),
        changed(36, 3),
        changed(40, 0xff),
        [whole.clone(), vec![0]].concat(),
    ];
    frames.map(|frame| answering(&frame)).into()
}

fn answers_beyond() -> Vec<Vec<u8>> {
    let through = numbers(&[1, 0, 2, u32::MAX, 0, 0, 0]);
    vec![
        answering(&failures(&[(u32::MAX, 0, "")])),
        answering(&through),
    ]
}

/// A piece for this destination.
fn pieces(destination: u32, key: &[u8], data: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("short");
    let head = numbers(&[1, 1, destination, length(key), length(data)]);
    [&head, key, data].concat()
}

fn put_all(frame: &[u8]) -> String {
    let length = frame.len();
    format!("(call $put-all (i32.const 8192) (i32.const {length}) (i32.const 2048))")
}

fn pieces_malformed() -> Vec<Vec<u8>> {
    let whole = pieces(0, b"key", b"data");
    let changed = |at: usize, byte: u8| {
        let mut frame = whole.clone();
        frame[at] = byte;
        frame
    };
    let frames = [
        Vec::new(),
        numbers(&[1]),
        changed(0, 0),
        changed(4, 2),
        changed(7, 0xff),
        changed(12, 0xff),
        changed(16, 0xff),
        changed(20, 0xff),
        pieces(0, &[b'k'; 3_000], b""),
        [whole.clone(), vec![0]].concat(),
    ];
    frames
        .map(|frame| doing(&frame, &put_all(&frame), &[]))
        .into()
}

fn pieces_to_nowhere() -> Vec<Vec<u8>> {
    [1, 77, u32::MAX]
        .map(|destination| {
            let frame = pieces(destination, b"key", b"data");
            doing(&frame, &put_all(&frame), &[])
        })
        .into()
}

/// A good piece of a byte, and after it a megabyte that is none: a thousand times.
fn frames_held_by_one_byte() -> Vec<Vec<u8>> {
    let good = pieces(0, b"", b"x");
    let process = "(drop (memory.grow (i32.const 16))) (local.set $n (i32.const 1000)) (loop $again
        (call $put-all (i32.const 8192) (i32.const 1000000) (i32.const 2048)) (call $reset)
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br_if $again (local.get $n)))";
    vec![doing(&good, process, &[])]
}

fn pieces_in_init() -> Vec<Vec<u8>> {
    let frame = numbers(&[1, 0]);
    vec![doing(&frame, "", &[(place::INIT, &put_all(&frame))])]
}

fn pieces_without_end() -> Vec<Vec<u8>> {
    let frame = pieces(0, b"", b"");
    let nothing = numbers(&[1, 0]);
    let again = |frame: &[u8]| {
        let call = put_all(frame);
        doing(
            frame,
            &format!("(loop $again {call} (call $reset) (br $again))"),
            &[],
        )
    };
    vec![again(&frame), again(&nothing)]
}

/// Where the host is to put the batch: nowhere.
fn place_outside() -> Vec<Vec<u8>> {
    let large =
        "(if (i32.gt_u (local.get $size) (i32.const 30)) (then (return (i32.const 65530))))";
    vec![doing(&[], "", &[(place::REALLOC, large)])]
}

fn other_types() -> Vec<Vec<u8>> {
    let export = EXPORT.replace("(list u8) (error $error)", "(list s8) (error $error)");
    // Of a version that is compatible by its number.
    let later = export.replace("bulk@0.1.0", "bulk@0.1.7");
    let file =
        |export: &str| contract::with(&[(place::FIELDS, &field("")), (place::EXPORTS, export)]);
    vec![file(&export), file(&later)]
}
