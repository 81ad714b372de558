mod whole;

use crate::{Filter, Verdict};

fn of(data_pattern: &str) -> Filter {
    Filter::new(None, vec![format!("{{\"data\": {data_pattern}}}")]).unwrap()
}

fn matches(data_pattern: &str, data: &str) -> bool {
    of(data_pattern).judge("key", data.as_bytes()) == Verdict::Passes
}

/// A pattern, what it matches, and what it does not match.
const CASES: &[(&str, &str, &str)] = &[
    (r#"{"a": ["x"]}"#, r#"{"a": "x"}"#, r#"{"a": "X"}"#),
    (r#"{"a": ["x", "y"]}"#, r#"{"a": "y"}"#, r#"{"b": "y"}"#),
    (r#"{"a": [""]}"#, r#"{"a": ""}"#, r#"{"a": null}"#),
    (r#"{"a": [null]}"#, r#"{"a": null}"#, r#"{"a": ""}"#),
    (r#"{"a": [null]}"#, r#"{"a": null}"#, r"{}"),
    (r#"{"a": [true]}"#, r#"{"a": true}"#, r#"{"a": "true"}"#),
    (r#"{"a": [5]}"#, r#"{"a": 5.0}"#, r#"{"a": "5"}"#),
    (r#"{"a": [5.0]}"#, r#"{"a": 5}"#, r#"{"a": 5.1}"#),
    (r#"{"a": [300]}"#, r#"{"a": 3.0e2}"#, r#"{"a": 301}"#),
    (
        r#"{"a": [9007199254740993]}"#,
        r#"{"a": 9007199254740993}"#,
        r#"{"a": 9007199254740992}"#,
    ),
    (
        r#"{"a": [{"numeric": ["=", 100]}]}"#,
        r#"{"a": 1e2}"#,
        r#"{"a": "100"}"#,
    ),
    (
        r#"{"a": [{"numeric": [">", 10, "<=", 20]}]}"#,
        r#"{"a": 20}"#,
        r#"{"a": 10}"#,
    ),
    (
        r#"{"a": [{"numeric": ["<", 0]}]}"#,
        r#"{"a": -0.5}"#,
        r#"{"a": 0}"#,
    ),
    (
        r#"{"a": [{"prefix": "us-"}]}"#,
        r#"{"a": "us-east-1"}"#,
        r#"{"a": "eu-us-"}"#,
    ),
    (
        r#"{"a": [{"suffix": ".png"}]}"#,
        r#"{"a": "x.png"}"#,
        r#"{"a": ".pngx"}"#,
    ),
    (
        r#"{"a": [{"prefix": {"equals-ignore-case": "US"}}]}"#,
        r#"{"a": "us-1"}"#,
        r#"{"a": "u"}"#,
    ),
    (
        r#"{"a": [{"suffix": {"equals-ignore-case": "PNG"}}]}"#,
        r#"{"a": "a.png"}"#,
        r#"{"a": "ng"}"#,
    ),
    (
        r#"{"a": [{"equals-ignore-case": "ALICE"}]}"#,
        r#"{"a": "alice"}"#,
        r#"{"a": "alic"}"#,
    ),
    (
        r#"{"a": [{"anything-but": "x"}]}"#,
        r#"{"a": "y"}"#,
        r#"{"a": "x"}"#,
    ),
    (
        r#"{"a": [{"anything-but": ["x", "y"]}]}"#,
        r#"{"a": null}"#,
        r#"{"b": 1}"#,
    ),
    (
        r#"{"a": [{"anything-but": [1, 2]}]}"#,
        r#"{"a": "1"}"#,
        r#"{"a": 2.0}"#,
    ),
    (
        r#"{"a": [{"anything-but": {"prefix": "init"}}]}"#,
        r#"{"a": "run"}"#,
        r#"{"a": "init1"}"#,
    ),
    (
        r#"{"a": [{"exists": true}]}"#,
        r#"{"a": null}"#,
        r#"{"a": {"b": 1}}"#,
    ),
    (
        r#"{"a": [{"exists": false}]}"#,
        r#"{"b": 1}"#,
        r#"{"a": null}"#,
    ),
    (
        r#"{"a": [{"exists": false}]}"#,
        r#"{"a": {"b": 1}}"#,
        r#"{"a": [1]}"#,
    ),
    (
        r#"{"a": [{"exists": false}, "x"]}"#,
        r#"{"a": "x"}"#,
        r#"{"a": "y"}"#,
    ),
    (
        r#"{"a": {"b": [{"exists": false}]}}"#,
        r#"{"a": 5}"#,
        r#"{"a": {"b": 5}}"#,
    ),
    (
        r#"{"a": ["x"]}"#,
        r#"{"a": ["y", "x"]}"#,
        r#"{"a": ["y", {"x": "x"}]}"#,
    ),
    (r#"{"a": ["x"]}"#, r#"{"a": [["y", "x"]]}"#, r#"{"a": []}"#),
    (
        r#"{"a": ["x"], "b": [1]}"#,
        r#"{"b": 1, "a": "x"}"#,
        r#"{"a": "x"}"#,
    ),
    (
        r#"{"a": {"b": [1]}}"#,
        r#"{"a": {"b": 1}}"#,
        r#"{"a.b": 1}"#,
    ),
    (
        r#"{"a": {"b": [1], "c": [2]}}"#,
        r#"{"a": [{"b": 1, "c": 2}]}"#,
        r#"{"a": [{"b": 1}, {"c": 2}]}"#,
    ),
    (
        r#"{"$or": [{"a": [1]}, {"b": [2]}]}"#,
        r#"{"b": 2}"#,
        r#"{"a": 2, "b": 1}"#,
    ),
    (
        r#"{"c": [3], "$or": [{"a": [1]}, {"b": {"d": [2]}}]}"#,
        r#"{"b": {"d": 2}, "c": 3}"#,
        r#"{"a": 1}"#,
    ),
    (r#"{"a": [1]}"#, r#"[{"a": 2}, {"a": 1}]"#, "[1, 2]"),
    (r#"{"a": [{"exists": false}]}"#, "5", r#"{"a": 5}"#),
    (
        r#"{"tab\t": ["\u00e9"]}"#,
        r#"{"tab\u0009": "é"}"#,
        r#"{"tab": "é"}"#,
    ),
];

#[test]
fn each_operator_matches_what_eventbridge_documents() {
    for (pattern, yes, no) in CASES {
        assert!(matches(pattern, yes), "{pattern} must match {yes}");
        assert!(!matches(pattern, no), "{pattern} must not match {no}");
    }
}

#[test]
fn one_of_several_patterns_is_enough_and_the_key_must_have_its_prefix() {
    let patterns = [
        r#"{"data": {"a": [1]}}"#,
        r#"{"data": {"a": [2], "b": {"c": [3]}}}"#,
    ];
    let patterns = patterns.map(str::to_owned).to_vec();
    let filter = Filter::new(Some("quake-".to_owned()), patterns).unwrap();
    assert_eq!(filter.judge("quake-1", br#"{"a": 1}"#), Verdict::Passes);
    assert_eq!(
        filter.judge("quake-1", br#"{"b": {"c": 3}, "a": 2}"#),
        Verdict::Passes
    );
    assert_eq!(filter.judge("quake-1", br#"{"a": 2}"#), Verdict::NoMatch);
    assert_eq!(filter.judge("1", br#"{"a": 1}"#), Verdict::NoMatch);
    let of_keys = Filter::new(Some("quake-".to_owned()), Vec::new()).unwrap();
    assert_eq!(
        of_keys.judge("quake-", b"\xff"),
        Verdict::Passes,
        "any data"
    );
}

#[test]
fn data_that_is_not_json_does_not_pass_a_pattern() {
    let filter = of(r#"{"a": [{"anything-but": "x"}]}"#);
    for data in [
        &b""[..],
        b"plain",
        b"{\"b\": 1",
        b"{\"b\": 1} x",
        b"{\"b\": 01}",
        b"{\"a\": \"\xff\"}",
        b"\x1f\x8b\x08",
        b"{\"b\": 1}}",
        b"\xff\xfe{",
    ] {
        assert_eq!(filter.judge("k", data), Verdict::NotJson, "{data:?}");
    }
    let broken = br#"{"a": 1, "#;
    assert_eq!(
        filter.judge("k", broken),
        Verdict::Passes,
        "it matched before it broke off"
    );
}

#[test]
fn what_is_json_and_cannot_be_judged_passes_and_hostile_data_does_no_harm() {
    let filter = of(r#"{"a": ["x"]}"#);
    let nested = |times: usize| [&b"["[..]; 1].concat().repeat(times);
    let deep = [
        b"{\"a\": ",
        &nested(100_000)[..],
        &b"]".repeat(100_000),
        b"}",
    ]
    .concat();
    assert_eq!(
        filter.judge("k", &deep),
        Verdict::Passes,
        "deeper than it is read"
    );
    let elsewhere = [
        b"{\"b\": ",
        &nested(100_000)[..],
        &b"]".repeat(100_000),
        b"}",
    ]
    .concat();
    assert_eq!(
        filter.judge("k", &elsewhere),
        Verdict::NoMatch,
        "skipped at any depth"
    );
    assert_eq!(filter.judge("k", &nested(1 << 20)), Verdict::NotJson);
    assert_eq!(filter.judge("k", br#"{"a": 1e999}"#), Verdict::Passes);
    assert_eq!(filter.judge("k", br#"{"b": 1e999}"#), Verdict::NoMatch);
    let digits = [b"{\"a\": ", &b"9".repeat(1 << 20)[..], b"}"].concat();
    assert_eq!(filter.judge("k", &digits), Verdict::Passes);
    assert_eq!(filter.judge("k", br#"{"a": "\ud800"}"#), Verdict::Passes);
    assert_eq!(
        filter.judge("k", b"\xEF\xBB\xBF{\"a\": \"x\"}"),
        Verdict::Passes
    );
    assert_eq!(
        filter.judge("k", br#"{"a": "x", "a": "y"}"#),
        Verdict::Passes
    );
    assert_eq!(
        filter.judge("k", br#"{"a": "y", "a": "x"}"#),
        Verdict::Passes
    );
}

#[test]
fn what_is_not_supported_is_refused_by_its_name() {
    for (pattern, named) in [
        ("{", "not JSON"),
        (
            r#"{"data": {"a": {"b": [1], "b": [2]}}}"#,
            "\"b\" comes twice",
        ),
        ("[]", "is not an object"),
        (r#"{"type": ["x"]}"#, "\"type\" is not supported at the top"),
        (
            r#"{"partitionKey": ["x"], "data": {"a": [1]}}"#,
            "key-prefix",
        ),
        ("{}", "has no \"data\""),
        (r#"{"data": ["x"]}"#, "must be an object"),
        (r#"{"data": {}}"#, "empty object"),
        (r#"{"data": {"a": "x"}}"#, "\"a\" must be a list"),
        (r#"{"data": {"a": []}}"#, "empty list"),
        (r#"{"data": {"a": [["x"]]}}"#, "list within a list"),
        (
            r#"{"data": {"a": [{"wildcard": "x*"}]}}"#,
            "\"wildcard\" is not supported",
        ),
        (
            r#"{"data": {"a": [{"cidr": "10.0.0.0/8"}]}}"#,
            "\"cidr\" is not supported",
        ),
        (
            r#"{"data": {"a": [{"prefix": 5}]}}"#,
            "\"prefix\" must have a string",
        ),
        (
            r#"{"data": {"a": [{"prefix": "x", "suffix": "y"}]}}"#,
            "one operator",
        ),
        (
            r#"{"data": {"a": [{"anything-but": {"wildcard": "x"}}]}}"#,
            "\"wildcard\"",
        ),
        (
            r#"{"data": {"a": [{"anything-but": ["x", 1]}]}}"#,
            "only strings",
        ),
        (
            r#"{"data": {"a": [{"anything-but": null}]}}"#,
            "only strings",
        ),
        (
            r#"{"data": {"a": [{"numeric": ["~", 1]}]}}"#,
            "\"~\" is not supported",
        ),
        (
            r#"{"data": {"a": [{"numeric": [">", 5, "<", 1]}]}}"#,
            "\"numeric\" must",
        ),
        (
            r#"{"data": {"a": [{"numeric": [">"]}]}}"#,
            "\"numeric\" must",
        ),
        (r#"{"data": {"a": [{"exists": "yes"}]}}"#, "\"exists\""),
        (r#"{"data": {"$or": [{"a": [1]}]}}"#, "at least two"),
        (
            r#"{"data": {"$or": [{"prefix": [1]}, {"a": [1]}]}}"#,
            "within \"$or\"",
        ),
    ] {
        let refused = Filter::new(None, vec![pattern.to_owned()]).unwrap_err();
        assert_eq!(refused.key, "patterns");
        assert!(refused.message.contains(named), "{pattern}: {refused}");
    }
    assert!(Filter::new(None, Vec::new()).is_err());
    assert!(Filter::new(Some(String::new()), Vec::new()).is_err());
    let good = r#"{"data": {"a": [1]}}"#.to_owned();
    assert!(Filter::new(None, vec![good.clone(); 10]).is_ok());
    assert!(Filter::new(None, vec![good; 11]).is_err());
    let long = format!(r#"{{"data": {{"a": ["{}"]}}}}"#, "x".repeat(4_096));
    assert!(Filter::new(None, vec![long]).is_err());
    let deep = format!(
        "{{\"data\": {}[1]{}}}",
        "{\"a\":".repeat(18),
        "}".repeat(18)
    );
    assert!(Filter::new(None, vec![deep]).is_err());
}
