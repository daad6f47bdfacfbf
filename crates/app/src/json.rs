//! JSON from strangers: one object, no duplicate keys, bounded depth.
//!
//! What is priced must be what is sent upstream, so a key that stands twice (where parsers differ in which
//! one they take) is refused, and the body that goes upstream is written anew from what was read here.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use turnpike_core::errors::ErrorCode;

use crate::error::AppError;

/// Reads one JSON object. Nesting is limited to 128 levels by serde_json.
///
/// # Errors
/// `INVALID_JSON` for anything else, duplicate keys included.
pub fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, AppError> {
    match parse(bytes)? {
        Value::Object(map) => Ok(map),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Err(
            AppError::new(ErrorCode::InvalidJson, "the body must be a JSON object"),
        ),
    }
}

/// Reads one JSON value without duplicate keys.
///
/// # Errors
/// `INVALID_JSON`.
pub fn parse(bytes: &[u8]) -> Result<Value, AppError> {
    let invalid = |error: serde_json::Error| {
        AppError::new(
            ErrorCode::InvalidJson,
            format!("the body is not valid JSON: {error}"),
        )
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = UniqueKeys.deserialize(&mut deserializer).map_err(invalid)?;
    deserializer.end().map_err(invalid)?;
    Ok(value)
}

/// How deeply arrays and objects are nested in a JSON text.
pub(crate) fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth = depth.saturating_add(1);
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

struct UniqueKeys;

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element_seed(Self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = members.next_value_seed(Self)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom("a key stands twice in one object"));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fault matrix 92, 93
    #[test]
    fn hostile_json_is_refused_and_never_overflows_the_stack() {
        let deep = "[".repeat(4_000_000);
        let twice = r#"{"model":"a","model":"b"}"#;
        let nested_twice = r#"{"a":[{"max_tokens":1,"max_tokens":2}]}"#;
        for bad in [
            deep.as_str(),
            twice,
            nested_twice,
            "{} x",
            "",
            "{",
            "[1]",
            "\"x\"",
            "{\"a\":1e999}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":NaN}",
            "{'a':1}",
        ] {
            let error = parse_object(bad.as_bytes()).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidJson);
        }
        assert!(parse_object(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn what_is_read_is_written_again_in_the_same_order() {
        let text = r#"{"b":1,"a":{"z":[1,2.5,null,true,"x\n"],"y":-3}}"#;
        let map = parse_object(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&map).unwrap(), text);
    }
}
