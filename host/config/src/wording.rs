//! What serde says about a key or its value, in the words of the file. serde names types of Rust,
//! which authors of a configuration need not know.

use super::section;

/// A kind of value that a key may have.
struct Kind {
    /// What serde expects for it.
    expected: &'static [&'static str],
    /// What it is called.
    called: &'static str,
    /// How it is written.
    example: &'static str,
}

const KINDS: [Kind; 10] = [
    Kind {
        expected: &["a duration"],
        called: "a duration",
        example: "a duration is written such as \"500ms\", \"10s\" or \"5m\"",
    },
    Kind {
        expected: &[
            "parsable string",
            "an integer or string",
            "integer overflow",
        ],
        called: "a size",
        example: "a size is written such as \"512KiB\" or \"4MiB\"",
    },
    Kind {
        expected: &["usize", "u64"],
        called: "a whole number from 0 on",
        example: "a whole number is written without quotes, such as 100",
    },
    Kind {
        expected: &["u32"],
        called: "a whole number from 0 to 4294967295",
        example: "a whole number is written without quotes, such as 100",
    },
    Kind {
        expected: &["f64"],
        called: "a number",
        example: "a number is written without quotes, such as 2.5",
    },
    Kind {
        expected: &["a boolean"],
        called: "a boolean",
        example: "true or false is written without quotes",
    },
    Kind {
        expected: &[
            "a string",
            "string only",
            "string or map",
            "variant identifier",
        ],
        called: "a string",
        example: "text is written in quotes, such as \"orders\"",
    },
    Kind {
        expected: &["path string"],
        called: "a path",
        example: "a path is written in quotes, such as \"out/alerts.ndjson\"",
    },
    Kind {
        expected: &["a sequence"],
        called: "a list",
        example: "a list is written in brackets, such as [\"one\", \"two\"]",
    },
    Kind {
        expected: &["socket address"],
        called: "an address",
        example: ADDRESS,
    },
];

/// What is there in place of what was expected, as serde calls it and as the file does.
const FOUND: [(&str, &str); 3] = [
    ("floating point ", "number "),
    ("map", "section"),
    ("sequence", "list"),
];

const ADDRESS: &str = "an address is written as IP:PORT, such as \"127.0.0.1:9090\" or \
    \"[::1]:9090\"; names are not accepted";

/// Examples for what serde says in other ways, by how that begins.
const EXAMPLES: [(&str, &str); 5] = [
    ("invalid socket address", ADDRESS),
    (
        "missing field `type`",
        "say what it is, such as type = \"file\", \"kinesis\", \"http\" or \"stdout\"",
    ),
    (
        "missing field `path`",
        "say which file, such as path = \"out.ndjson\"",
    ),
    (
        "missing field `url`",
        "say where to, such as url = \"https://example.com/records\"",
    ),
    (
        "missing field `stream`",
        "say which stream, such as stream = \"orders\"",
    ),
];

/// `message`, without words of Rust. `value` is what the key has.
pub(super) fn in_words_of_the_file(message: &str, value: Option<&toml::Value>) -> String {
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return format!("unknown value {rest}");
    }
    if is_about_a_word(message) {
        let found = value.map_or_else(|| "value".to_owned(), found);
        return format!("invalid type: {found}, expected a string");
    }
    let Some((mismatch, expected)) = mismatch(message) else {
        return message.to_owned();
    };
    let expected = if is_section(expected) {
        "a section"
    } else {
        kind_of(expected).map_or(expected, |kind| kind.called)
    };
    format!("{}, expected {expected}", in_words_of_found(mismatch))
}

/// How the value of `key` that `message` expects is written, or the key that it misses.
pub(super) fn example(key: &str, message: &str) -> Option<String> {
    if let Some((_, example)) = EXAMPLES.iter().find(|(said, _)| message.starts_with(said)) {
        return Some((*example).to_owned());
    }
    if is_about_a_word(message) {
        return kind_of("a string").map(|kind| kind.example.to_owned());
    }
    let (mismatch, expected) = mismatch(message)?;
    if is_section(expected) {
        return Some(section_example(key));
    }
    let kind = kind_of(expected)?;
    // A number that is too small or too large is written as it should be.
    let is_number = mismatch.starts_with("invalid value: integer");
    let is_written_well = is_number && kind.called.starts_with("a whole number");
    (!is_written_well).then(|| kind.example.to_owned())
}

fn section_example(key: &str) -> String {
    let name = match key {
        "plugin" | "secrets" | "sinks" => format!("{key}.NAME"),
        _ => key.to_owned(),
    };
    format!("a section begins with the line [{name}], and its keys follow")
}

fn is_section(expected: &str) -> bool {
    expected == section::EXPECTED || expected == "a map"
}

/// What serde says where one of several words is expected and something else is there.
fn is_about_a_word(message: &str) -> bool {
    let beginnings = [
        "invalid type: unit variant",
        "wanted exactly 1",
        "invalid value: map",
    ];
    beginnings
        .iter()
        .any(|beginning| message.starts_with(beginning))
}

/// The two halves of what serde says about a value of the wrong kind.
fn mismatch(message: &str) -> Option<(&str, &str)> {
    if !message.starts_with("invalid type: ") && !message.starts_with("invalid value: ") {
        return None;
    }
    // The value itself may have these words in it.
    message.rsplit_once(", expected ")
}

fn kind_of(expected: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.expected.contains(&expected))
}

fn in_words_of_found(mismatch: &str) -> String {
    for (serde, file) in FOUND {
        if let Some(value) = mismatch.strip_prefix(&format!("invalid type: {serde}")) {
            return format!("invalid type: {file}{value}");
        }
    }
    mismatch.to_owned()
}

/// A value by its kind, as serde's messages have it.
fn found(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => format!("string {text:?}"),
        toml::Value::Integer(number) => format!("integer `{number}`"),
        toml::Value::Float(number) => format!("number `{number}`"),
        toml::Value::Boolean(is_true) => format!("boolean `{is_true}`"),
        toml::Value::Datetime(date) => format!("date `{date}`"),
        toml::Value::Array(_) => "list".to_owned(),
        toml::Value::Table(_) => "section".to_owned(),
    }
}
