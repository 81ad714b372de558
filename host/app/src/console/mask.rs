//! Fields of records, outputs and states that are never shown. What is masked has to be JSON: text
//! of any other form has no fields. What looks like JSON and cannot be read is not shown at all.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// What is shown in the place of a field, or of data in which none can be found.
pub(super) const MASKED: &str = "(masked)";

/// Keys of answers whose values are data of records, outputs or states.
const DATA: [&str; 3] = ["data", "data-base64", "state"];

/// What became of data.
enum Masking {
    /// This is to be shown in its place.
    Changed(String),
    /// It has none of the fields.
    Clean,
    /// It cannot be read as JSON.
    Unreadable,
}

/// Masks the fields in all data of an answer.
pub(super) fn mask(answer: &mut Value, fields: &[Vec<String>]) {
    if !fields.is_empty() {
        mask_within(answer, fields, false);
    }
}

fn mask_within(answer: &mut Value, fields: &[Vec<String>], is_data: bool) {
    match answer {
        Value::String(text) if is_data => *text = shown(text.as_bytes(), fields),
        Value::String(text) => {
            if let Masking::Changed(masked) = masking(text.as_bytes(), fields) {
                *text = masked;
            }
        }
        Value::Array(values) => {
            for value in values {
                mask_within(value, fields, is_data);
            }
        }
        Value::Object(values) => {
            for (key, value) in values {
                mask_within(value, fields, DATA.contains(&key.as_str()));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// How data are shown: with their fields masked, also if they are base64 of JSON, or JSON in a
/// string of JSON.
pub(super) fn shown(data: &[u8], fields: &[Vec<String>]) -> String {
    let text = || String::from_utf8_lossy(data).into_owned();
    if fields.is_empty() {
        return text();
    }
    match masking(data, fields) {
        Masking::Changed(masked) => masked,
        Masking::Clean => text(),
        Masking::Unreadable => {
            let decoded = BASE64_STANDARD.decode(data.trim_ascii()).ok();
            match decoded.as_deref().map(|data| masking(data, fields)) {
                Some(Masking::Changed(masked)) => BASE64_STANDARD.encode(masked),
                Some(Masking::Unreadable)
                    if decoded.is_some_and(|data| may_hide(&data, fields)) =>
                {
                    MASKED.to_owned()
                }
                None if may_hide(data, fields) => MASKED.to_owned(),
                _ => text(),
            }
        }
    }
}

/// Whether data that cannot be read may have a field all the same: they begin as JSON does, or name
/// one of the fields.
fn may_hide(data: &[u8], fields: &[Vec<String>]) -> bool {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let begins_as_json = data.starts_with(BYTE_ORDER_MARK)
        || matches!(data.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'));
    let mut names = fields.iter().filter_map(|path| path.last());
    begins_as_json || names.any(|name| memchr::memmem::find(data, name.as_bytes()).is_some())
}

fn masking(data: &[u8], fields: &[Vec<String>]) -> Masking {
    let Ok(mut value) = serde_json::from_slice::<Value>(data) else {
        return Masking::Unreadable;
    };
    if mask_value(&mut value, fields) {
        Masking::Changed(value.to_string())
    } else {
        Masking::Clean
    }
}

/// Masks the fields, and those of JSON within strings; returns whether there were some.
fn mask_value(value: &mut Value, fields: &[Vec<String>]) -> bool {
    let mut has_some = false;
    for path in fields {
        has_some |= mask_field(value, path);
    }
    mask_strings(value, fields) || has_some
}

fn mask_strings(value: &mut Value, fields: &[Vec<String>]) -> bool {
    match value {
        Value::String(text) => {
            // A plain word or number is JSON, too, and has no fields.
            let is_nested = text.trim_start().starts_with(['{', '[', '"']);
            if is_nested && let Masking::Changed(masked) = masking(text.as_bytes(), fields) {
                *text = masked;
                return true;
            }
            false
        }
        Value::Array(values) => {
            let masked = values.iter_mut().map(|value| mask_strings(value, fields));
            masked.fold(false, |some, one| some | one)
        }
        Value::Object(values) => {
            let masked = values.values_mut().map(|value| mask_strings(value, fields));
            masked.fold(false, |some, one| some | one)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Masks a field wherever it lies along the path, in each element of lists; returns whether there
/// was one.
fn mask_field(value: &mut Value, path: &[String]) -> bool {
    match (value, path) {
        (Value::Array(values), _) => {
            let masked = values.iter_mut().map(|value| mask_field(value, path));
            masked.fold(false, |some, one| some | one)
        }
        (Value::Object(values), [last]) => match values.get_mut(last) {
            Some(value) => {
                *value = MASKED.into();
                true
            }
            None => false,
        },
        (Value::Object(values), [first, rest @ ..]) => values
            .get_mut(first)
            .is_some_and(|value| mask_field(value, rest)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields() -> Vec<Vec<String>> {
        ["customer.email", "card"]
            .iter()
            .map(|path| path.split('.').map(str::to_owned).collect())
            .collect()
    }

    #[test]
    fn masked_fields_are_in_no_data_of_an_answer_whatever_they_are_wrapped_in() {
        let secret = json!({"card": 4711, "customer": [{"email": "a@b", "name": "A"}]}).to_string();
        let coded = BASE64_STANDARD.encode(&secret);
        let mut answer = json!({
            "again": {"output": [{"data": secret}, {"data-base64": coded}]},
            "state": BASE64_STANDARD.encode(format!("[{secret}]")),
            "text": secret,
        });
        mask(&mut answer, &fields());
        let output = &answer["again"]["output"];
        for plain in [&output[0]["data"], &answer["text"]] {
            let plain: Value = serde_json::from_str(plain.as_str().unwrap()).unwrap();
            let expected = json!({"card": MASKED, "customer": [{"email": MASKED, "name": "A"}]});
            assert_eq!(plain, expected);
        }
        for coded in [&output[1]["data-base64"], &answer["state"]] {
            let decoded = BASE64_STANDARD.decode(coded.as_str().unwrap()).unwrap();
            let decoded = String::from_utf8(decoded).unwrap();
            assert!(
                !decoded.contains("4711") && !decoded.contains("a@b"),
                "{decoded}"
            );
            assert!(decoded.contains("\"name\":\"A\""), "{decoded}");
        }
    }

    #[test]
    fn what_has_no_such_field_stays_as_it_is() {
        let kept = json!({
            "data": "{ \"email\" : 1 }", "shard": "12", "n": 3, "text": "[my card",
            "again": {"data": "plain words"},
        });
        let mut answer = kept.clone();
        mask(&mut answer, &fields());
        assert_eq!(answer, kept);
        let mut unmasked = json!({"data": "{\"card\":1}"});
        mask(&mut unmasked, &[]);
        assert_eq!(unmasked["data"], "{\"card\":1}");
    }

    #[test]
    fn nothing_is_shown_of_data_in_which_a_field_may_hide() {
        let deep = format!("{}{}", "[".repeat(200), "{\"card\":4711}");
        let nested = json!({"line": json!({"card": 4711}).to_string()}).to_string();
        let twice = json!({"a": json!({"b": json!({"card": 4711}).to_string()}).to_string()});
        for data in [
            b"{\"card\":4711,\"x\":\"\xff\"}".as_slice(),
            br#"{"card":4711,"x":"\ud800"}"#,
            br#"{"card":4711,"x":1e999}"#,
            br#"{"card":4711,"x":NaN}"#,
            b"\xef\xbb\xbf{\"card\":4711}",
            br#"{"card":4711}{"card":4711}"#,
            br#"{"card":4711,}"#,
            b"card=4711",
            deep.as_bytes(),
            nested.as_bytes(),
            twice.to_string().as_bytes(),
            BASE64_STANDARD.encode("{\"card\":4711,}").as_bytes(),
        ] {
            let text = shown(data, &fields());
            let decoded = BASE64_STANDARD.decode(&text).unwrap_or_default();
            let decoded = String::from_utf8_lossy(&decoded);
            assert!(
                !text.contains("4711") && !decoded.contains("4711"),
                "{text}"
            );
        }
        assert_eq!(
            shown(b"plain \xff words", &fields()),
            "plain \u{fffd} words"
        );
    }
}
