//! Arguments and answers to show where the document gives none: the plainest value that a schema lets through.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// Deepest nesting of an example.
const MAX_DEPTH: usize = 5;
/// Most values of an example.
const MAX_VALUES: usize = 1000;
/// Most members of an object in an example.
const MAX_MEMBERS: usize = 40;

/// Which members of objects are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Members {
    /// Those that are required.
    Required,
    /// All.
    All,
}

/// One example that is being made.
struct Maker<'a> {
    root: &'a Value,
    members: Members,
    left: Cell<usize>,
}

impl Maker<'_> {
    /// Counts a value; `false` when there are enough.
    fn goes_on(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }
}

/// A value that fits `schema` as far as can be told from its keywords; definitions are those of `root`.
pub(super) fn plainest(root: &Value, schema: &Value, members: Members) -> Value {
    let maker = Maker {
        root,
        members,
        left: Cell::new(MAX_VALUES),
    };
    at(&maker, schema, 0)
}

fn at(maker: &Maker<'_>, schema: &Value, depth: usize) -> Value {
    let given = |keyword: &str| schema.get(keyword);
    if let Some(first) = given("examples")
        .and_then(Value::as_array)
        .and_then(|all| all.first())
    {
        return first.clone();
    }
    if let Some(value) = given("const").or_else(|| given("default").filter(|value| !value.is_null())) {
        return value.clone();
    }
    if let Some(first) = given("enum")
        .and_then(Value::as_array)
        .and_then(|all| all.first())
    {
        return first.clone();
    }
    if depth > MAX_DEPTH || !maker.goes_on() {
        return Value::Null;
    }
    let deeper = depth.saturating_add(1);
    if let Some(reference) = given("$ref").and_then(Value::as_str) {
        let target = reference
            .strip_prefix('#')
            .and_then(|pointer| maker.root.pointer(pointer));
        return target.map_or(Value::Null, |target| at(maker, target, deeper));
    }
    if let Some(parts) = given("allOf").and_then(Value::as_array) {
        return merged(maker, schema, parts, deeper);
    }
    for keyword in ["oneOf", "anyOf"] {
        if let Some(first) = given(keyword)
            .and_then(Value::as_array)
            .and_then(|all| all.first())
            && given("properties").is_none()
        {
            return at(maker, first, deeper);
        }
    }
    let kind = match given("type") {
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
        Some(kind) => kind.as_str(),
        None if given("properties").is_some() => Some("object"),
        None => None,
    };
    match kind {
        Some("object") => Value::Object(object(maker, schema, deeper)),
        Some("array") => {
            let item = given("items").filter(|items| items.is_object());
            json!([item.map_or(Value::Null, |item| at(maker, item, deeper))])
        }
        Some("integer" | "number") => number(schema),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some(_) | None => text(schema),
    }
}

fn merged(maker: &Maker<'_>, schema: &Value, parts: &[Value], depth: usize) -> Value {
    let mut all = object(maker, schema, depth);
    for part in parts.iter().take(MAX_MEMBERS) {
        match at(maker, part, depth) {
            Value::Object(more) => all.extend(more),
            other if all.is_empty() => return other,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
        }
    }
    Value::Object(all)
}

fn object(maker: &Maker<'_>, schema: &Value, depth: usize) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let wanted = |name: &str| {
        maker.members == Members::All
            || required.is_some_and(|required| required.iter().any(|wanted| wanted == name))
    };
    let mut object = Map::new();
    for (name, property) in properties.into_iter().flatten() {
        if wanted(name) && object.len() < MAX_MEMBERS {
            object.insert(name.clone(), at(maker, property, depth));
        }
    }
    object
}

fn number(schema: &Value) -> Value {
    let least = schema.get("minimum").cloned();
    let above = schema.get("exclusiveMinimum").and_then(Value::as_i64);
    let most = schema.get("maximum").and_then(Value::as_i64);
    match (least, above, most) {
        (Some(least), _, _) if least.as_i64().is_none_or(|least| least > 1) => least,
        (_, Some(above), _) if above >= 1 => json!(above.saturating_add(1)),
        (_, _, Some(most)) if most < 1 => json!(most),
        (_, _, _) => json!(1),
    }
}

fn text(schema: &Value) -> Value {
    let format = schema.get("format").and_then(Value::as_str);
    let text = match format {
        Some("date-time") => "2026-01-02T03:04:05Z",
        Some("date") => "2026-01-02",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        Some("email") => "someone@example.com",
        Some("uri" | "url") => "https://example.com/",
        Some("ipv4") => "192.0.2.1",
        Some(_) | None => "text",
    };
    let least = schema.get("minLength").and_then(Value::as_u64);
    let least = least
        .and_then(|least| usize::try_from(least).ok())
        .unwrap_or(0)
        .min(200);
    let mut text = text.to_owned();
    while text.len() < least {
        text.push('x');
    }
    if let Some(most) = schema
        .get("maxLength")
        .and_then(Value::as_u64)
        .and_then(|most| usize::try_from(most).ok())
    {
        text = text.chars().take(most).collect();
    }
    Value::String(text)
}
