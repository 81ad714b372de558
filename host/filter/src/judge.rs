//! Reads a record's JSON once, goes into what a pattern looks at, and skips the rest.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::level::{Field, Found, Level};
use crate::rule::{Number, Scalar};
use crate::verdict::Verdict;

/// Some producers put it before UTF-8, and some readers take it.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// What the patterns say of `data`.
///
/// What is JSON and cannot be judged passes, so that nothing is lost that might be wanted: nested
/// deeper than 128 levels where a pattern looks, a number that no double holds, half of a surrogate
/// pair.
pub(crate) fn judge(level: &Level, data: &[u8]) -> Verdict {
    let data = data.strip_prefix(BYTE_ORDER_MARK).unwrap_or(data);
    let mut json = serde_json::Deserializer::from_slice(data);
    let mut outcome = Outcome {
        level,
        matching: 0,
        has_object: false,
    };
    let read = outcome.read(&mut json);
    if outcome.matching != 0 {
        // Decided before all was read.
        return Verdict::Passes;
    }
    if read.and_then(|()| json.end()).is_ok() {
        return if outcome.has_object || level.outcome(Found::default()) == 0 {
            Verdict::NoMatch
        } else {
            Verdict::Passes
        };
    }
    let is_json = std::str::from_utf8(data).is_ok_and(|text| {
        let skipped: Result<IgnoredAny, _> = serde_json::from_str(text);
        skipped.is_ok()
    });
    if is_json {
        Verdict::Passes
    } else {
        Verdict::NotJson
    }
}

/// The patterns that match the data of a record: an object, or one of an array of objects.
struct Outcome<'l> {
    level: &'l Level,
    matching: u64,
    has_object: bool,
}

impl Outcome<'_> {
    fn read<'de, D: Deserializer<'de>>(&mut self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> DeserializeSeed<'de> for &mut Outcome<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        self.read(json)
    }
}

impl<'de> Visitor<'de> for &mut Outcome<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.has_object = true;
        let mut found = Found::default();
        while let Some(field) = map.next_key_seed(Name(self.level))? {
            let Some(field) = field else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            map.next_value_seed(Value {
                field,
                found: &mut found,
            })?;
            self.matching = self.level.matching(found.met);
            if self.matching != 0 {
                return Ok(());
            }
        }
        self.matching = self.level.outcome(found);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(&mut *self)?.is_some() {
            if self.matching != 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// The field of a name, if a pattern looks at it.
struct Name<'l>(&'l Level);

impl<'de, 'l> DeserializeSeed<'de> for Name<'l> {
    type Value = Option<&'l Field>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'l> Visitor<'_> for Name<'l> {
    type Value = Option<&'l Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.fields.get(name))
    }
}

/// Compares the value of a field, or each value of an array, with what is wanted of it. A name that
/// comes twice in an object counts like an array of both values.
struct Value<'l, 'f> {
    field: &'l Field,
    found: &'f mut Found,
}

impl Value<'_, '_> {
    fn compare(self, value: Scalar<'_>) {
        for (condition, rules) in &self.field.values {
            self.found.seen |= condition;
            if rules.iter().any(|rule| rule.holds(value)) {
                self.found.met |= condition;
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some(within) = &self.field.within else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let mut found = Found::default();
        while let Some(field) = map.next_key_seed(Name(within))? {
            match field {
                Some(field) => map.next_value_seed(Value {
                    field,
                    found: &mut found,
                })?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        for condition in &self.field.objects {
            self.found.seen |= condition;
        }
        self.found.met |= self.field.met_by(within.outcome(found));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        loop {
            let element = Value {
                field: self.field,
                found: &mut *self.found,
            };
            if seq.next_element_seed(element)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.compare(Scalar::Null);
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.compare(Scalar::Bool(value));
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.compare(Scalar::Number(Number::Whole(value.into())));
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.compare(Scalar::Number(Number::Whole(value.into())));
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.compare(Scalar::Number(Number::Fraction(value)));
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.compare(Scalar::Text(value));
        Ok(())
    }
}
