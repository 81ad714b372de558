//! Components by chance: a grammar of what a hostile author may write, drawn from a seed. Most of
//! them load; what they do makes no sense. A whole host must live through any of them.

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

/// The component that `seed` stands for; always the same.
pub fn component(seed: u64) -> Vec<u8> {
    let mut grammar = Grammar {
        random: Rng::with_seed(seed),
    };
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
        match self.random.u8(..10) {
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
            _ => constant,
        }
    }

    fn statement(&mut self, may_call: bool, depth: usize) -> String {
        let (a, b, c) = (self.i32(2), self.i32(1), self.i32(1));
        match self.random.u8(..if may_call { 20 } else { 14 }) {
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
            _ => String::new(),
        }
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
        let extra = match self.random.u8(..8) {
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
            _ => String::new(),
        };
        format!(
            "(type $nothing (func)) (global $g (mut i32) (i32.const 0)) (global $turns (mut i32) \
                (i32.const {}))
             (table $table {table} funcref) (func $f0 {f0}) (func $f1 {f1}) (func $f2 {f2}) {extra}",
            self.number()
        )
    }

    /// Other modules, some of them many times.
    fn outside(&mut self) -> String {
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
        let different: std::collections::BTreeSet<_> = (0..50).map(component).collect();
        assert_eq!(different.len(), 50);
    }
}
