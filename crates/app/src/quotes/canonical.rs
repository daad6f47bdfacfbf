//! Arguments in one form, whatever the order of their members and the blanks between them (after RFC 8785).
//!
//! Integers keep every digit, also beyond those that a double can tell apart, so that two calls that a provider may tell
//! apart are never taken for one.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of the canonical form of `args`, hexadecimal.
pub(crate) fn args_hash(args: &Value) -> Arc<str> {
    hex::encode(Sha256::digest(canonical(args))).into()
}

/// `args` with sorted members and without blanks.
pub(crate) fn canonical(args: &Value) -> String {
    let mut text = String::new();
    write(args, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            // By UTF-16 code units, as RFC 8785 has it.
            sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            text.push('{');
            for (at, (name, value)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&Value::String(name.clone()).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Number(number) => {
            let digits = number.to_string();
            let whole = digits.strip_suffix(".0").unwrap_or(&digits);
            text.push_str(if whole == "-0" { "0" } else { whole });
        }
        Value::Null | Value::Bool(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn order_blanks_and_the_form_of_a_number_do_not_matter() {
        let one: Value = serde_json::from_str(r#"{"b":[1,{"y":1.0,"x":null}],"a":"é\n"}"#).unwrap();
        let other: Value =
            serde_json::from_str(r#"{ "a" : "\u00e9\u000a", "b": [ 1.0, {"x":null, "y":1} ] }"#).unwrap();
        assert_eq!(canonical(&one), r#"{"a":"é\n","b":[1,{"x":null,"y":1}]}"#);
        assert_eq!(args_hash(&one), args_hash(&other));
        assert_eq!(canonical(&json!(-0.0)), "0");
        // Sorted by UTF-16: the surrogates of the emoji go before the last private character.
        let keys: Value = serde_json::from_str(r#"{"\ufb33":1,"😂":2,"a":3}"#).unwrap();
        assert_eq!(canonical(&keys), "{\"a\":3,\"😂\":2,\"\u{fb33}\":1}");
    }

    #[test]
    fn what_differs_is_told_apart() {
        let differing = [
            json!({}),
            json!([]),
            json!({ "a": 1 }),
            json!({ "a": "1" }),
            json!({ "a": 1.5 }),
            json!({ "a": [1] }),
            json!({ "a": null }),
            json!({ "A": 1 }),
            json!({ "a": 9_007_199_254_740_993_u64 }),
            json!({ "a": 9_007_199_254_740_992_u64 }),
            json!([1, 2]),
            json!([2, 1]),
        ];
        let hashes: std::collections::BTreeSet<_> = differing.iter().map(args_hash).collect();
        assert_eq!(hashes.len(), differing.len());
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(keys in proptest::collection::vec("[a-zé😂]{0,4}", 0..6), n in proptest::prelude::any::<i64>()) {
            let members: serde_json::Map<String, Value> =
                keys.iter().map(|key| (key.clone(), json!({ "n": n, "k": key }))).collect();
            let turned: serde_json::Map<String, Value> = members.clone().into_iter().rev().collect();
            let (one, other) = (Value::Object(members), Value::Object(turned));
            proptest::prop_assert_eq!(canonical(&one), canonical(&other));
            let read: Value = serde_json::from_str(&canonical(&one)).unwrap();
            proptest::prop_assert_eq!(read, one);
        }
    }
}
