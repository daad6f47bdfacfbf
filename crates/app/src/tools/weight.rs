//! How often a schema looks at one value: what bounds the time that checking arguments takes.

use std::collections::HashMap;

use serde_json::Value;

/// Most times that one value may be looked at.
const MAX_LOOKS: u64 = 5_000;
/// Keywords whose schemas look at the same value: one schema, or a list of them.
const SAME_VALUE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];

/// Whether no value is looked at too often, wherever in the schema it is described.
pub(super) fn is_bearable(schema: &Value) -> bool {
    let mut known = HashMap::new();
    let mut waiting = vec![schema];
    while let Some(next) = waiting.pop() {
        if next.is_object() && looks(schema, next, &mut known, 0) > MAX_LOOKS {
            return false;
        }
        match next {
            Value::Object(members) => waiting.extend(members.values()),
            Value::Array(items) => waiting.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    true
}

/// How often `schema` looks at the value that it is given; `known` holds what is known of references.
fn looks<'a>(root: &'a Value, schema: &'a Value, known: &mut HashMap<&'a str, u64>, depth: usize) -> u64 {
    let Some(members) = schema.as_object() else {
        return 1;
    };
    // Deeper than any reader of documents goes.
    if depth > 200 {
        return u64::MAX;
    }
    let mut sum = 1_u64;
    for keyword in SAME_VALUE {
        let parts: &[Value] = match members.get(keyword) {
            None => continue,
            Some(Value::Array(parts)) => parts,
            Some(part) => std::slice::from_ref(part),
        };
        for part in parts {
            sum = sum.saturating_add(looks(root, part, known, depth.saturating_add(1)));
        }
    }
    if let Some(Value::Object(parts)) = members.get("dependentSchemas") {
        for part in parts.values() {
            sum = sum.saturating_add(looks(root, part, known, depth.saturating_add(1)));
        }
    }
    if let Some(target) = members.get("$ref").and_then(Value::as_str) {
        sum = sum.saturating_add(referenced(root, target, known, depth));
    }
    sum
}

fn referenced<'a>(root: &'a Value, target: &'a str, known: &mut HashMap<&'a str, u64>, depth: usize) -> u64 {
    if let Some(looks) = known.get(target) {
        return *looks;
    }
    // A reference that leads to itself looks at nothing new.
    known.insert(target, 0);
    let found = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
    let sum = found.map_or(0, |schema| looks(root, schema, known, depth.saturating_add(1)));
    known.insert(target, sum);
    sum
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn doubling_is_refused_and_plain_recursion_is_not() {
        let mut definitions = json!({ "l30": { "type": "string" } });
        for level in 0..30 {
            let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
            definitions[format!("l{level}")] = json!({ "allOf": [next, next] });
        }
        let hostile = json!({ "properties": { "p": { "$ref": "#/$defs/l0" } }, "$defs": definitions });
        assert!(!is_bearable(&hostile));
        let tree = json!({
            "$ref": "#/$defs/node",
            "$defs": { "node": { "properties": { "l": { "$ref": "#/$defs/node" }, "r": { "$ref": "#/$defs/node" } } } }
        });
        assert!(is_bearable(&tree));
        let looped =
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/a" }, {}] } } });
        assert!(is_bearable(&looped));
    }
}
