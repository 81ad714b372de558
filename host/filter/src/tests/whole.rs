//! The same rules once more, over the whole tree of a record and pattern by pattern, as plainly as
//! possible; both must agree on random patterns and records.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Filter, Verdict};

/// Whether an object, or an object within an array, meets a pattern.
fn meets(pattern: &Value, value: Option<&Value>) -> bool {
    let mut objects = Vec::new();
    collect(value, &mut objects, &|value| value.is_object());
    if objects.is_empty() {
        return object_meets(pattern, &json!({}));
    }
    objects.iter().any(|object| object_meets(pattern, object))
}

fn object_meets(pattern: &Value, object: &Value) -> bool {
    pattern.as_object().unwrap().iter().all(|(name, wanted)| {
        if name == "$or" {
            let alternatives = wanted.as_array().unwrap();
            return alternatives.iter().any(|one| object_meets(one, object));
        }
        let value = object.get(name);
        match wanted.as_array() {
            Some(rules) => rules.iter().any(|rule| rule_holds(rule, value)),
            None => meets(wanted, value),
        }
    })
}

fn rule_holds(rule: &Value, value: Option<&Value>) -> bool {
    let mut values = Vec::new();
    collect(value, &mut values, &|value| !value.is_object());
    match rule.get("exists") {
        Some(Value::Bool(false)) => values.is_empty(),
        Some(_) => !values.is_empty(),
        None => values.iter().any(|value| value_holds(rule, value)),
    }
}

fn value_holds(rule: &Value, value: &Value) -> bool {
    let text = value.as_str();
    if let Some(other) = rule.get("anything-but") {
        return !other.as_array().unwrap().contains(value);
    }
    if let Some(prefix) = rule.get("prefix") {
        return text.is_some_and(|text| text.starts_with(prefix.as_str().unwrap()));
    }
    if let Some(bounds) = rule.get("numeric") {
        let limit = bounds[1].as_f64().unwrap();
        return value.as_f64().is_some_and(|value| value > limit);
    }
    rule == value
}

/// All parts of `value` that are `wanted`, through arrays.
fn collect<'v>(
    value: Option<&'v Value>,
    found: &mut Vec<&'v Value>,
    wanted: &dyn Fn(&Value) -> bool,
) {
    match value {
        Some(Value::Array(elements)) => {
            for element in elements {
                collect(Some(element), found, wanted);
            }
        }
        Some(value) if wanted(value) => found.push(value),
        Some(_) | None => {}
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = Value> {
    let whole = (0..3_i64).prop_map(Value::from);
    let text = prop_oneof![Just(""), Just("x"), Just("xy")].prop_map(Value::from);
    prop_oneof![
        whole,
        text,
        any::<bool>().prop_map(Value::from),
        Just(Value::Null)
    ]
}

fn data() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn rule() -> impl Strategy<Value = Value> {
    prop_oneof![
        scalar(),
        any::<bool>().prop_map(|exists| json!({"exists": exists})),
        prop_oneof![Just("x"), Just("xy")].prop_map(|text| json!({"prefix": text})),
        (0..3).prop_map(|limit| json!({"numeric": [">", limit]})),
        Just(json!({"anything-but": ["x", ""]})),
        Just(json!({"anything-but": [1, 2]})),
    ]
}

fn pattern() -> impl Strategy<Value = Value> {
    let rules = prop::collection::vec(rule(), 1..3)
        .prop_map(Value::from)
        .boxed();
    let leaf = prop::collection::btree_map(name(), rules.clone(), 1..3)
        .prop_map(|map| Value::Object(map.into_iter().collect()));
    leaf.prop_recursive(3, 16, 3, move |inner| {
        let field = prop_oneof![rules.clone(), inner.clone()];
        let either = prop::collection::vec(inner, 2..4).prop_map(Value::from);
        let name = prop_oneof![3 => name().boxed(), 1 => Just("$or".to_owned()).boxed()];
        prop::collection::btree_map(name, (field, either), 1..4).prop_map(|map| {
            let entries = map.into_iter().map(|(name, (field, either))| {
                let value = if name == "$or" { either } else { field };
                (name, value)
            });
            Value::Object(entries.collect())
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_read_once_agrees_with_the_whole_tree(
        patterns in prop::collection::vec(pattern(), 1..4),
        data in data(),
    ) {
        let texts = patterns.iter().map(|data| json!({"data": data}).to_string()).collect();
        let Ok(filter) = Filter::new(None, texts) else {
            // Beyond a bound.
            return Ok(());
        };
        let verdict = filter.judge("key", data.to_string().as_bytes());
        let is_met = patterns.iter().any(|pattern| meets(pattern, Some(&data)));
        prop_assert_eq!(verdict == Verdict::Passes, is_met, "{:?} {}", patterns, data);
    }
}
