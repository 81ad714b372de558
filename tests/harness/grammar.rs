//! Components by chance: a grammar of what a hostile author may write, drawn from a seed. Most of
//! them load; what they do makes no sense. A whole host must live through any of them.

mod damage;

use fastrand::Rng;

use crate::corpus::bulk;
use crate::corpus::contract::{self, place};
use crate::corpus::imports::{IMPORTS, LOWERED};

/// Statements of one body, and how deep they stand in each other.
const STATEMENTS_MAX: usize = 6;
const DEPTH_MAX: usize = 4;

/// Numbers at ends of ranges, and addresses where results and arguments lie.
const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "16",
    "255",
    "1024",
    "1032",
    "1040",
    "2048",
    "4096",
    "65528",
    "65536",
    "0x7fffffff",
    "0x80000000",
    "-1",
];

/// Interfaces that the host links in some version, or does not.
const INTERFACES: [&str; 8] = [
    "wasi:cli/environment@0.2.0",
    "wasi:clocks/wall-clock@0.2.9",
    "wasi:filesystem/preopens@0.2.0",
    "wasi:http/types@0.2.0",
    "wasi:random/random@0.3.0",
    "wasi:sockets/tcp@0.2.0",
    "shardmill:processor/output@0.1.0",
    "shardmill:processor/output@9.9.9",
];

/// The component that `seed` stands for; always the same. Every fourth one is damaged.
pub fn component(seed: u64) -> Vec<u8> {
    let mut grammar = Grammar {
        random: Rng::with_seed(seed),
    };
    let mut bytes = whole(&mut grammar);
    if seed % 4 == 3 {
        damage::damage(&mut bytes, &mut grammar.random);
    }
    bytes
}

fn whole(grammar: &mut Grammar) -> Vec<u8> {
    let [init, process, close] = std::array::from_fn(|_| grammar.body(true));
    let [post, realloc] = std::array::from_fn(|_| {
        if grammar.random.u8(..4) == 0 {
            grammar.body(false)
        } else {
            String::new()
        }
    });
    // It belongs to the other module, which has neither these functions nor these globals.
    let realloc = if is_plain(&realloc) {
        realloc
    } else {
        String::new()
    };
    let (mut fields, outside, options) = (grammar.fields(), grammar.outside(), grammar.options());
    let exports = if grammar.random.bool() {
        fields += &bulk::field(&grammar.body(true));
        bulk::EXPORT
    } else {
        ""
    };
    contract::with(&[
        (place::OUTSIDE, &outside),
        (place::LOWERED, LOWERED),
        (place::IMPORTS, IMPORTS),
        (place::WITH, r#"(with "host" (instance $host))"#),
        (place::FIELDS, &fields),
        (place::INIT, &init),
        (place::PROCESS, &process),
        (place::CLOSE, &close),
        (place::POST, &post),
        (place::REALLOC, &realloc),
        (place::OPTIONS, options),
        (place::EXPORTS, exports),
    ])
}

struct Grammar {
    random: Rng,
}

impl Grammar {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.random.usize(..from.len())]
    }

    fn number(&mut self) -> String {
        match self.random.u8(..4) {
            0 => self.random.u16(..).to_string(),
            1 => self.random.i32(..).to_string(),
            _ => self.pick(&NUMBERS).to_owned(),
        }
    }

    /// Mostly fewer than a hundred.
    fn seldom_up_to(&mut self, most: usize) -> usize {
        match self.random.u8(..8) {
            0 => self.random.usize(..most),
            _ => self.random.usize(..100),
        }
    }

    /// Often nothing, seldom much.
    fn body(&mut self, may_call: bool) -> String {
        let count = self.random.usize(..=STATEMENTS_MAX);
        (0..count)
            .map(|_| self.statement(may_call, DEPTH_MAX))
            .collect()
    }

    fn i32(&mut self, depth: usize) -> String {
        let constant = format!("(i32.const {})", self.number());
        if depth == 0 {
            return constant;
        }
        match self.random.u8(..14) {
            0 => "(global.get $g)".to_owned(),
            1 => "(memory.size)".to_owned(),
            2 => format!("(i32.load {})", self.i32(depth - 1)),
            3 => format!("(i32.load8_u offset=65535 {})", self.i32(depth - 1)),
            4 => {
                let operator = self.pick(&[
                    "add", "sub", "mul", "div_s", "rem_u", "shl", "rotl", "and", "xor",
                ]);
                format!(
                    "(i32.{operator} {} {})",
                    self.i32(depth - 1),
                    self.i32(depth - 1)
                )
            }
            5 => format!("(memory.grow {})", self.i32(depth - 1)),
            6 => format!(
                "(i32.trunc_sat_f64_u (f64.div (f64.const 1) (f64.convert_i32_s {})))",
                self.i32(depth - 1)
            ),
            7 => self.of_vector(depth - 1),
            8 => self.of_wider(depth - 1),
            _ => constant,
        }
    }

    /// By way of 128 bits.
    fn of_vector(&mut self, depth: usize) -> String {
        let (at, number) = (self.i32(depth), self.i32(depth));
        let vector = match self.random.u8(..5) {
            0 => format!("(i8x16.swizzle (v128.load {at}) (i32x4.splat {number}))"),
            1 => format!("(i32x4.trunc_sat_f32x4_s (f32x4.sqrt (i32x4.splat {number})))"),
            2 => format!("(f64x2.convert_low_i32x4_u (v128.load64_splat {at}))"),
            3 => format!("(i16x8.q15mulr_sat_s (v128.load8x8_s {at}) (i16x8.splat {number}))"),
            _ => format!("(i64x2.shl (v128.load {at}) {number})"),
        };
        match self.random.u8(..3) {
            0 => format!("(i8x16.bitmask {vector})"),
            1 => format!("(v128.any_true {vector})"),
            _ => format!("(i32x4.extract_lane 3 {vector})"),
        }
    }

    /// By way of 64 bits, of a fraction, or of a choice.
    fn of_wider(&mut self, depth: usize) -> String {
        let (a, b) = (self.i32(depth), self.i32(depth));
        match self.random.u8(..6) {
            0 => format!("(i32.wrap_i64 (i64.mul (i64.load {a}) (i64.extend_i32_s {b})))"),
            1 => format!("(i32.wrap_i64 (i64.div_s (i64.extend_i32_s {a}) (i64.load32_u {b})))"),
            2 => format!("(i32.trunc_f32_s (f32.sqrt (f32.convert_i32_s {a})))"),
            3 => format!("(select {a} {b} (i32.clz {a}))"),
            4 => format!("(i32.load16_s offset=0xffffffff {a})"),
            _ => "(table.size $table)".to_owned(),
        }
    }

    fn statement(&mut self, may_call: bool, depth: usize) -> String {
        let (a, b, c) = (self.i32(2), self.i32(1), self.i32(1));
        match self.random.u8(..if may_call { 24 } else { 14 }) {
            0 => format!("(i32.store {a} {b})"),
            1 => format!(
                "(i32.store8 (i32.const {}) {b})",
                self.pick(&["1024", "1032", "1040", "1048", "2052"])
            ),
            2 => format!("(i64.store {a} (i64.const {}))", self.number()),
            3 => format!("(memory.fill {a} {b} {c})"),
            4 => format!("(memory.copy {a} {b} {c})"),
            5 => format!("(global.set $g {a})"),
            6 => format!("(drop {a})"),
            7 => format!("(drop (table.grow $table (ref.null func) {a}))"),
            8 => format!("(call_indirect $table (type $nothing) {a})"),
            9 => format!("(call ${})", self.pick(&["f0", "f1", "f2"])),
            10 if depth > 0 => format!("(if {a} (then {}))", self.statement(may_call, depth - 1)),
            11 if depth > 0 => self.repeated(may_call, depth - 1),
            12 if depth > 0 => format!(
                "(block {} (br_if 0 {a}) {})",
                self.statement(may_call, depth - 1),
                self.statement(may_call, depth - 1)
            ),
            13 if self.random.u8(..6) == 0 => "(unreachable)".to_owned(),
            14..=19 => self.host_call(),
            20 => self.of_tables(),
            21 => self.deep(),
            22 if self.random.u8(..40) == 0 => self.of_proposals().to_owned(),
            _ => String::new(),
        }
    }

    fn of_tables(&mut self) -> String {
        let (a, b, c) = (self.i32(1), self.i32(1), self.i32(1));
        match self.random.u8(..6) {
            0 => format!("(table.fill $table {a} (ref.func $f0) {b})"),
            1 => format!("(table.copy $table $table {a} {b} {c})"),
            2 => format!("(table.set $table {a} (ref.func $f1))"),
            3 => format!("(table.init $table $functions {a} {b} {c})"),
            4 => format!("(memory.init $bytes {a} {b} {c})"),
            _ => self
                .pick(&["(data.drop $bytes)", "(elem.drop $functions)"])
                .to_owned(),
        }
    }

    /// Blocks in blocks, a jump to many places, or one instruction many times.
    fn deep(&mut self) -> String {
        let number = self.i32(1);
        let times = self.seldom_up_to(20_000);
        match self.random.u8(..3) {
            0 => format!("{} {}", "block ".repeat(times), "end ".repeat(times)),
            1 => format!("(block (br_table {} 0 {number}))", "0 ".repeat(times)),
            _ => "(global.set $g (i32.mul (global.get $g) (global.get $g)))".repeat(times),
        }
    }

    /// Instructions that not every engine takes.
    fn of_proposals(&mut self) -> &'static str {
        self.pick(&[
            "(atomic.fence)",
            "(drop (i32.atomic.rmw.add (i32.const 0) (i32.const 1)))",
            "(drop (ref.i31 (i32.const 1)))",
            "(drop (i32x4.relaxed_trunc_f32x4_s (v128.const i64x2 0 -1)))",
            "(block (try_table (catch_all 0) (call $f0)))",
            "(drop (call_ref $nothing (ref.func $f0)))",
        ])
    }

    /// Some times, or until somebody stops it.
    fn repeated(&mut self, may_call: bool, depth: usize) -> String {
        let inner = self.statement(may_call, depth);
        match self.random.u8(..8) {
            0 => format!("(loop {inner} (br 0))"),
            _ => format!(
                "(loop {inner} (global.set $turns (i32.sub (global.get $turns) (i32.const 1)))
                   (br_if 0 (i32.gt_s (global.get $turns) (i32.const 0))))"
            ),
        }
    }

    fn text(&mut self) -> String {
        match self.random.u8(..3) {
            0 => format!("{} {}", self.i32(1), self.i32(1)),
            _ => format!("(i32.const 16) (i32.const {})", self.random.u8(..8)),
        }
    }

    fn host_call(&mut self) -> String {
        let (one, other, number) = (self.text(), self.text(), self.number());
        let answer = if self.random.u8(..8) == 0 {
            self.i32(1)
        } else {
            "(i32.const 3072)".to_owned()
        };
        match self.random.u8(..13) {
            0 => format!("(call $put {one} {other} {} {answer})", self.text()),
            1 => format!("(call $counter {one} (i64.const {number}))"),
            2 => format!("(call $gauge {one} (f64.reinterpret_i64 (i64.const {number})))"),
            3 => format!(
                "(call $histogram {one} (f64.convert_i32_s {}))",
                self.i32(1)
            ),
            4 => format!("(call $who {answer})"),
            5 => format!("(call $get {one} {answer})"),
            6 => format!(
                "(call $log (i32.const {}) {one} {other})",
                self.random.u8(..8)
            ),
            7 => format!("(call $random (i64.const {number}) {answer})"),
            8 => "(drop (call $now))".to_owned(),
            9 => format!("(drop (call $subscribe (i64.const {number})))"),
            10 => format!("(call $put-all {one} {answer})"),
            11 => format!("(call $terms {answer})"),
            _ => format!("(call ${} {})", self.pick(&["block", "drop"]), self.i32(1)),
        }
    }

    fn fields(&mut self) -> String {
        let [f0, f1, f2] = std::array::from_fn(|_| self.body(true));
        let table = self.pick(&["0", "1", "10", "1000", "99999"]);
        let extra = match self.random.u8(..13) {
            0 => format!("(data (i32.const {}) \"x\")", self.number()),
            1 => format!("(memory {})", self.random.u16(..1_200)),
            2 => format!(
                "(global f64 (f64.const 0)) {}",
                "(global i64 (i64.const 0))".repeat(self.random.usize(..5_000))
            ),
            3 => format!(
                "(@custom \"name\" \"\\{:02x}\\{:02x}\\01\\61\")",
                self.random.u8(..),
                self.random.u8(..)
            ),
            4 => "(start $f0)".to_owned(),
            5 => self
                .pick(&["(memory i64 1)", "(memory 1 2 shared)", "(tag)"])
                .to_owned(),
            6 => format!(
                "(elem (table $table) (i32.const {}) func {})",
                self.number(),
                "$f0 ".repeat(self.random.usize(..3_000))
            ),
            7 => format!("(func {})", self.deep()),
            _ => String::new(),
        };
        let locals = self.locals();
        format!(
            "(type $nothing (func)) (global $g (mut i32) (i32.const 0)) (global $turns (mut i32) \
                (i32.const {}))
             (data $bytes \"hostile\") (elem $functions func $f0 $f1 $f2)
             (table $table {table} funcref) (func $f0 {locals} {f0}) (func $f1 {f1})
             (func $f2 {f2}) {extra}",
            self.number()
        )
    }

    fn locals(&mut self) -> String {
        let kind = self.pick(&["i32", "i64", "f64", "v128", "funcref"]);
        let times = match self.random.u8(..8) {
            0 => self.random.usize(..60_000),
            1 => self.random.usize(..100),
            _ => return String::new(),
        };
        format!("(local {})", format!("{kind} ").repeat(times))
    }

    fn outside(&mut self) -> String {
        match self.random.u8(..10) {
            0 => format!(r#"(import "{}" (instance))"#, self.pick(&INTERFACES)),
            1 => self.types(),
            2 => {
                let depth = self.random.usize(..60);
                format!("{} {}", "(component ".repeat(depth), ")".repeat(depth))
            }
            3 => format!(
                "(component $c (core module)) {}",
                "(instance (instantiate $c))".repeat(self.random.usize(..2_000))
            ),
            _ => self.modules(),
        }
    }

    /// Types in types, or with many parts.
    fn types(&mut self) -> String {
        let times = self.seldom_up_to(3_000);
        match self.random.u8(..4) {
            0 => format!("(type (tuple {}))", "u8 ".repeat(times)),
            1 => {
                let fields = (0..times).map(|number| format!(r#"(field "f{number}" string)"#));
                format!("(type (record {}))", fields.collect::<String>())
            }
            2 => format!(
                "(type {} u8 {})",
                "(list ".repeat(times.min(60)),
                ")".repeat(times.min(60))
            ),
            _ => {
                let doubled = (1..times.min(64))
                    .map(|number| format!("(type $d{number} (tuple $d{0} $d{0}))", number - 1));
                format!("(type $d0 (tuple u8 u8)) {}", doubled.collect::<String>())
            }
        }
    }

    /// Other modules, some of them many times.
    fn modules(&mut self) -> String {
        let times = self.random.usize(..70);
        let fields = match self.random.u8(..8) {
            0 => format!("(memory {})", self.random.u8(..)),
            1 => format!("(table {} externref)", self.random.u16(..20_000)),
            2 => "(global i32 (i32.const 0))".repeat(self.random.usize(..4_000)),
            3 => "(func $f) (start $f)".to_owned(),
            _ => return String::new(),
        };
        format!(
            "(core module $heavy {fields}) {}",
            "(core instance (instantiate $heavy))".repeat(times)
        )
    }

    fn options(&mut self) -> &'static str {
        self.pick(&[
            "",
            "",
            "",
            "string-encoding=utf8",
            "string-encoding=utf16",
            "string-encoding=latin1+utf16",
        ])
    }
}

fn is_plain(body: &str) -> bool {
    !body.contains('$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_always_the_same_component_and_seeds_differ() {
        assert_eq!(component(7), component(7));
        let different: std::collections::BTreeSet<_> = (0..400).map(component).collect();
        assert_eq!(different.len(), 400);
    }
}
