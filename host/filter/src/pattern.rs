//! Reads patterns, and refuses by name what is not supported.

use serde_json::{Map, Value};

use crate::level::{CONDITIONS_MAX, Field, Level, Wanted};
use crate::rule::{Bound, Compare, Number, Part, Rule};
use crate::twice::NothingTwice;

/// Objects within each other that a pattern may have; more is not written by hand, and each costs
/// stack.
const DEPTH_MAX: usize = 16;

/// Names that `EventBridge` reserves within `$or`, since they are operators or may become some.
const RESERVED_IN_OR: [&str; 13] = [
    "exactly",
    "equals-ignore-case",
    "prefix",
    "suffix",
    "anything-but",
    "exists",
    "wildcard",
    "numeric",
    "cidr",
    "regex",
    "=",
    "<",
    ">",
];

type Object = Map<String, Value>;

/// All patterns together. Each is an object with the one key `data`.
pub(crate) fn read_all(patterns: &[String]) -> Result<Level, String> {
    let mut objects = Vec::new();
    for pattern in patterns {
        let value: Value = serde_json::from_str(pattern)
            .map_err(|error| format!("{pattern} is not JSON: {error}"))?;
        let NothingTwice =
            serde_json::from_str(pattern).map_err(|error| format!("{pattern}: {error}"))?;
        objects.push(data_of(value).map_err(|problem| format!("{pattern}: {problem}"))?);
    }
    let objects: Vec<&Object> = objects.iter().collect();
    level_of(&objects, DEPTH_MAX)
}

fn data_of(pattern: Value) -> Result<Object, String> {
    let Value::Object(mut pattern) = pattern else {
        return Err("is not an object, such as {\"data\": {\"type\": [\"buy\"]}}".to_owned());
    };
    let data = pattern.remove("data");
    if let Some(name) = pattern.keys().next() {
        return Err(format!(
            "{name:?} is not supported at the top of a pattern: fields of a record's data go under \
                \"data\", and key-prefix is for the partition key"
        ));
    }
    match data {
        Some(Value::Object(data)) => Ok(data),
        Some(_) => Err("\"data\" must be an object with fields of a record's data".to_owned()),
        None => Err("has no \"data\", under which fields of a record's data go".to_owned()),
    }
}

/// What the `patterns`, which look at one object, want of it.
fn level_of(patterns: &[&Object], depth: usize) -> Result<Level, String> {
    let mut reading = Reading::default();
    for pattern in patterns {
        let wanted = reading.all_of(pattern, false)?;
        reading.level.wanted.push(wanted);
    }
    let Reading {
        mut level, within, ..
    } = reading;
    for (name, objects) in within {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("{name:?} is more than {DEPTH_MAX} objects deep"));
        };
        let within = level_of(&objects, depth)?;
        if let Some(field) = level.fields.get_mut(&name) {
            field.within = Some(Box::new(within));
        }
    }
    Ok(level)
}

/// A level that is being read.
#[derive(Default)]
struct Reading<'p> {
    level: Level,
    conditions: usize,
    /// The patterns for the objects that fields have, by the field's name.
    within: std::collections::BTreeMap<String, Vec<&'p Object>>,
}

impl<'p> Reading<'p> {
    fn all_of(&mut self, pattern: &'p Object, is_in_or: bool) -> Result<Wanted, String> {
        if pattern.is_empty() {
            return Err("an empty object matches nothing: name a field in it".to_owned());
        }
        let mut all = Vec::new();
        for (name, value) in pattern {
            if name == "$or" {
                all.push(self.any_of(value)?);
                continue;
            }
            if is_in_or && RESERVED_IN_OR.contains(&name.as_str()) {
                return Err(format!(
                    "{name:?} cannot be the name of a field within \"$or\""
                ));
            }
            all.push(Wanted::Condition(self.field(name, value)?));
        }
        Ok(Wanted::All(all))
    }

    fn any_of(&mut self, value: &'p Value) -> Result<Wanted, String> {
        let problem = "\"$or\" must be a list of at least two objects";
        let alternatives = value
            .as_array()
            .filter(|list| list.len() >= 2)
            .ok_or(problem)?;
        let mut any = Vec::new();
        for alternative in alternatives {
            let pattern = alternative.as_object().ok_or(problem)?;
            any.push(self.all_of(pattern, true)?);
        }
        Ok(Wanted::Any(any))
    }

    /// One more condition, on a field.
    fn field(&mut self, name: &str, value: &'p Value) -> Result<u64, String> {
        if self.conditions == CONDITIONS_MAX {
            return Err(format!(
                "together they have more than {CONDITIONS_MAX} conditions on fields of one object"
            ));
        }
        let condition = 1 << self.conditions;
        self.conditions += 1;
        let field: &mut Field = self.level.fields.entry(name.to_owned()).or_default();
        match value {
            Value::Array(rules) => {
                let rules = rules_of(rules).map_err(|problem| format!("{name:?}: {problem}"))?;
                field.values.push((condition, rules));
            }
            Value::Object(object) => {
                field.objects.push(condition);
                self.within.entry(name.to_owned()).or_default().push(object);
            }
            other => {
                return Err(format!(
                    "{name:?} must be a list of values and rules, such as [{other}], or an object"
                ));
            }
        }
        Ok(condition)
    }
}

fn rules_of(rules: &[Value]) -> Result<Vec<Rule>, String> {
    if rules.is_empty() {
        return Err("an empty list matches nothing: name a value in it".to_owned());
    }
    rules.iter().map(rule_of).collect()
}

fn rule_of(value: &Value) -> Result<Rule, String> {
    match value {
        Value::Object(object) => operator_of(object),
        Value::Array(_) => Err("a list within a list is not a rule".to_owned()),
        value => value_of(value),
    }
}

fn value_of(value: &Value) -> Result<Rule, String> {
    Ok(match value {
        Value::Null => Rule::Null,
        Value::Bool(value) => Rule::Bool(*value),
        Value::Number(number) => Rule::Number(number_of(number)?),
        Value::String(text) => whole(text, false),
        Value::Array(_) | Value::Object(_) => return Err(format!("{value} is not a plain value")),
    })
}

fn number_of(number: &serde_json::Number) -> Result<Number, String> {
    if let Some(whole) = number.as_i128() {
        return Ok(Number::Whole(whole));
    }
    let fraction = number.as_f64().ok_or("a number that no double holds")?;
    Ok(Number::Fraction(fraction))
}

fn whole(text: &str, ignores_case: bool) -> Rule {
    let part = Part::Whole;
    Rule::Text(Compare { part, ignores_case }, text.to_owned())
}

fn only_entry(object: &Object) -> Result<(&str, &Value), String> {
    let mut entries = object.iter();
    match (entries.next(), entries.next()) {
        (Some((name, value)), None) => Ok((name, value)),
        _ => Err("a rule has one operator, such as {\"prefix\": \"x\"}".to_owned()),
    }
}

fn operator_of(object: &Object) -> Result<Rule, String> {
    let (operator, value) = only_entry(object)?;
    match operator {
        "prefix" => text_rule(operator, Part::Prefix, value),
        "suffix" => text_rule(operator, Part::Suffix, value),
        "equals-ignore-case" => Ok(whole(text_of(operator, value)?, true)),
        "numeric" => numeric_of(value),
        "exists" => {
            let exists = value.as_bool().ok_or("\"exists\" must be true or false")?;
            Ok(Rule::Exists(exists))
        }
        "anything-but" => anything_but_of(value),
        other => Err(format!(
            "the operator {other:?} is not supported; use prefix, suffix, \
                equals-ignore-case, numeric, exists or anything-but"
        )),
    }
}

fn text_of<'v>(operator: &str, value: &'v Value) -> Result<&'v str, String> {
    let text = value.as_str();
    text.ok_or_else(|| format!("{operator:?} must have a string, not {value}"))
}

/// `"x"`, or `{"equals-ignore-case": "x"}`.
fn text_rule(operator: &str, part: Part, value: &Value) -> Result<Rule, String> {
    let (text, ignores_case) = match value {
        Value::Object(object) => match only_entry(object)? {
            ("equals-ignore-case", value) => (text_of("equals-ignore-case", value)?, true),
            (other, _) => return Err(format!("{other:?} is not supported within {operator:?}")),
        },
        value => (text_of(operator, value)?, false),
    };
    Ok(Rule::Text(Compare { part, ignores_case }, text.to_owned()))
}

fn numeric_of(value: &Value) -> Result<Rule, String> {
    let problem =
        "\"numeric\" must be [\"=\", N], or one or two of <, <=, >, >= each with a number";
    let parts = value.as_array().ok_or(problem)?;
    let mut bounds = Vec::new();
    for pair in parts.chunks(2) {
        let [Value::String(bound), Value::Number(number)] = pair else {
            return Err(problem.to_owned());
        };
        let bound = match bound.as_str() {
            "=" => Bound::Equal,
            "<" => Bound::Below,
            "<=" => Bound::AtMost,
            ">" => Bound::Above,
            ">=" => Bound::AtLeast,
            other => {
                return Err(format!(
                    "{other:?} is not supported within \"numeric\"; {problem}"
                ));
            }
        };
        bounds.push((bound, number_of(number)?));
    }
    match bounds[..] {
        [_] => Ok(Rule::Numeric(bounds)),
        [(one, low), (other, high)] if is_range(one, other) && low < high => {
            Ok(Rule::Numeric(bounds))
        }
        [(one, high), (other, low)] if is_range(other, one) && low < high => {
            Ok(Rule::Numeric(bounds))
        }
        _ => Err(problem.to_owned()),
    }
}

fn is_range(lower: Bound, upper: Bound) -> bool {
    matches!(lower, Bound::Above | Bound::AtLeast) && matches!(upper, Bound::Below | Bound::AtMost)
}

fn anything_but_of(value: &Value) -> Result<Rule, String> {
    let rules = match value {
        Value::Object(object) => {
            let (operator, value) = only_entry(object)?;
            let part = match operator {
                "prefix" => Part::Prefix,
                "suffix" => Part::Suffix,
                "equals-ignore-case" => Part::Whole,
                other => {
                    return Err(format!(
                        "{other:?} is not supported within \"anything-but\""
                    ));
                }
            };
            let compare = Compare {
                part,
                ignores_case: operator == "equals-ignore-case",
            };
            let rule = |value| Ok(Rule::Text(compare, text_of(operator, value)?.to_owned()));
            list_of(value)
                .iter()
                .map(rule)
                .collect::<Result<Vec<_>, String>>()?
        }
        value => list_of(value)
            .iter()
            .map(value_of)
            .collect::<Result<Vec<_>, String>>()?,
    };
    let is_text = |rule: &Rule| matches!(rule, Rule::Text(..));
    let is_number = |rule: &Rule| matches!(rule, Rule::Number(_));
    if rules.is_empty() || !(rules.iter().all(is_text) || rules.iter().all(is_number)) {
        let problem = "\"anything-but\" must have a string or a number, or a list of only strings \
            or only numbers";
        return Err(problem.to_owned());
    }
    Ok(Rule::AnythingBut(rules))
}

/// A list, or one value as a list.
fn list_of(value: &Value) -> &[Value] {
    match value {
        Value::Array(list) => list,
        one => std::slice::from_ref(one),
    }
}
