//! Reads protobuf by the text of its definition: independent of what the host encodes with, so that
//! a wrong field number or type shows.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// The messages and enums of some `.proto` files, by the last part of their names.
#[derive(Debug, Default)]
pub(super) struct Schema {
    messages: HashMap<String, HashMap<u64, Field>>,
    enums: HashMap<String, HashMap<u64, String>>,
}

#[derive(Debug, Clone)]
struct Field {
    name: String,
    of_type: String,
    is_repeated: bool,
}

impl Schema {
    /// Reads definitions. Knows as much of the language as OTLP uses.
    ///
    /// # Panics
    ///
    /// If a definition cannot be read.
    pub(super) fn of(files: &[&str]) -> Self {
        let mut schema = Self::default();
        for file in files {
            schema.read(file);
        }
        schema
    }

    fn read(&mut self, file: &str) {
        let mut blocks: Vec<(String, String)> = Vec::new();
        for line in file.lines() {
            let line = line.split("//").next().unwrap_or_default().trim();
            let words: Vec<&str> = line
                .trim_end_matches([';', '{'])
                .split_whitespace()
                .collect();
            if line.ends_with('{') {
                let kind = words.first().copied().unwrap_or_default();
                let name = words.get(1).copied().unwrap_or_default();
                blocks.push((kind.to_owned(), name.to_owned()));
            } else if line.starts_with('}') {
                blocks.pop();
            } else if let Some(at) = words.iter().position(|word| *word == "=") {
                self.add(&blocks, &words[..at], words[at + 1]);
            }
        }
        assert!(blocks.is_empty(), "unbalanced: {blocks:?}");
    }

    fn add(&mut self, blocks: &[(String, String)], before: &[&str], number: &str) {
        let number = match number.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => number.parse(),
        };
        // Options of the file have no number.
        let Ok(number) = number else { return };
        let [.., of_type, name] = before else {
            let (kind, of) = blocks.last().expect("a name stands in a block");
            assert_eq!(kind, "enum", "{before:?}");
            let names = self.enums.entry(of.clone()).or_default();
            names.insert(number, before[0].to_owned());
            return;
        };
        let message = blocks.iter().rev().find(|(kind, _)| kind == "message");
        let Some((_, message)) = message else { return };
        let field = Field {
            name: (*name).to_owned(),
            of_type: of_type.rsplit('.').next().unwrap_or(of_type).to_owned(),
            is_repeated: before[0] == "repeated",
        };
        let fields = self.messages.entry(message.clone()).or_default();
        fields.insert(number, field);
    }

    /// What `bytes` say, as a message of that name: fields by name, bytes in hexadecimal digits.
    ///
    /// # Panics
    ///
    /// If they are no such message.
    pub(super) fn decode(&self, message: &str, mut bytes: &[u8]) -> Value {
        let fields = self.messages.get(message);
        let fields = fields.unwrap_or_else(|| panic!("no message {message}"));
        let mut found = Map::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let (number, wire) = (tag >> 3, tag & 7);
            let field = fields.get(&number);
            let field = field.unwrap_or_else(|| panic!("{message} has no field {number}"));
            let value = self.value(message, field, wire, &mut bytes);
            if field.is_repeated {
                let list = found.entry(&field.name).or_insert_with(|| json!([]));
                list.as_array_mut().expect("a list").push(value);
            } else {
                found.insert(field.name.clone(), value);
            }
        }
        Value::Object(found)
    }

    fn value(&self, message: &str, field: &Field, wire: u64, bytes: &mut &[u8]) -> Value {
        let of_type = field.of_type.as_str();
        let known = match of_type {
            "fixed64" => 1,
            "fixed32" => 5,
            "bytes" | "string" => 2,
            other if self.messages.contains_key(other) => 2,
            _ => 0,
        };
        let name = &field.name;
        assert_eq!(wire, known, "{message}.{name} is a {of_type}");
        match wire {
            0 => self.number(of_type, varint(bytes)),
            1 => json!(u64::from_le_bytes(
                take(bytes, 8).try_into().expect("eight bytes")
            )),
            5 => json!(u32::from_le_bytes(
                take(bytes, 4).try_into().expect("four bytes")
            )),
            _ => {
                let length = usize::try_from(varint(bytes)).expect("it fits");
                let inside = take(bytes, length);
                match of_type {
                    "string" => json!(std::str::from_utf8(inside).expect("text")),
                    "bytes" => json!(hex::encode(inside)),
                    other => self.decode(other, inside),
                }
            }
        }
    }

    fn number(&self, of_type: &str, number: u64) -> Value {
        match (of_type, self.enums.get(of_type)) {
            (_, Some(names)) => json!(names.get(&number).expect("a value of the enum")),
            ("int64" | "int32", _) => json!(number.cast_signed()),
            ("bool", _) => json!(number == 1),
            _ => json!(number),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number without an end");
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    assert!(bytes.len() >= count, "cut off");
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}
