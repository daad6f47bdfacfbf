//! Schemas of OpenAPI 3.0 and 3.1 as JSON Schema 2020-12, with what they refer to under `$defs`.
//!
//! Only keywords that mean something are taken over, and only with values that they can have: real documents
//! have mistakes, and one mistake in a keyword should not cost the tool.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use super::document::{Document, Refusal, reference};
use super::names::{argument, unique};
use super::words::cut;

/// Deepest nesting of one schema.
const MAX_DEPTH: usize = 64;
/// Most bytes of a tool's arguments' schema.
const MAX_INPUT: usize = 512 * 1024;
/// From this size on the schema of an answer leaves definitions out.
const MAX_OUTPUT: usize = 16 * 1024;
/// Longest example inside a schema, as JSON.
const MAX_EXAMPLE: usize = 1024;

/// Longest list of values that a schema lets through, as JSON; a longer one is left to the provider.
const MAX_ENUM: usize = 64 * 1024;
/// Most branches of a schema, and most names that it requires.
const MAX_LIST: usize = 1000;

/// Which way values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the provider.
    Input,
    /// From it.
    Output,
}

/// Schemas of one tool, and the definitions that they share.
pub(super) struct Schemas<'a> {
    document: &'a Document<'a>,
    direction: Direction,
    names: BTreeMap<String, String>,
    taken: BTreeSet<String>,
    waiting: VecDeque<(String, &'a Value)>,
    values: usize,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(document: &'a Document<'a>, direction: Direction) -> Self {
        Self {
            document,
            direction,
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
            waiting: VecDeque::new(),
            values: 0,
        }
    }

    /// A schema; its references lead to `$defs`, which [`Self::definitions`] gives.
    pub(super) fn convert(&mut self, schema: &'a Value) -> Result<Value, Refusal> {
        self.at(schema, 0)
    }

    /// The definitions that were referred to, for a schema of which `used` bytes are there already.
    pub(super) fn definitions(&mut self, used: usize) -> Result<Map<String, Value>, Refusal> {
        let mut definitions = Map::new();
        let mut bytes = used;
        let most = match self.direction {
            Direction::Input => MAX_INPUT,
            Direction::Output => MAX_OUTPUT,
        };
        while let Some((name, schema)) = self.waiting.pop_front() {
            if bytes > most {
                if self.direction == Direction::Input {
                    return Err(Refusal::TooLarge("schema"));
                }
                // What an answer has in its depths is left open.
                definitions.insert(name.clone(), json!({ "title": name }));
                continue;
            }
            let converted = self.at(schema, 0)?;
            bytes = bytes.saturating_add(size(&converted));
            definitions.insert(name, converted);
        }
        if bytes > most && self.direction == Direction::Input {
            return Err(Refusal::TooLarge("schema"));
        }
        Ok(definitions)
    }

    fn definition(&mut self, reference: &str) -> Result<String, Refusal> {
        let target = self.document.lookup(reference)?;
        if let Some(name) = self.names.get(reference) {
            return Ok(name.clone());
        }
        let last = reference.rsplit('/').next().unwrap_or_default();
        let name = unique(&argument(last), '_', &mut self.taken);
        self.names.insert(reference.to_owned(), name.clone());
        self.waiting.push_back((name.clone(), target));
        Ok(name)
    }

    fn at(&mut self, schema: &'a Value, depth: usize) -> Result<Value, Refusal> {
        self.document.step();
        self.values = self.values.saturating_add(1);
        if depth > MAX_DEPTH || self.values > 200_000 || self.document.is_spent() {
            return Err(Refusal::TooLarge("schema"));
        }
        let Some(members) = schema.as_object() else {
            return Ok(schema.as_bool().map_or_else(|| json!({}), Value::Bool));
        };
        let mut out = Map::new();
        if let Some(reference) = reference(schema) {
            let name = self.definition(reference)?;
            out.insert("$ref".to_owned(), format!("#/$defs/{name}").into());
        }
        let dropped = self.one_way_only(members);
        for (keyword, value) in members {
            self.keyword(&mut out, members, &dropped, (keyword, value), depth)?;
        }
        exclusive(&mut out, "exclusiveMinimum", "minimum");
        exclusive(&mut out, "exclusiveMaximum", "maximum");
        if members.get("nullable") == Some(&Value::Bool(true)) {
            out = nullable(out);
        }
        Ok(Value::Object(out))
    }

    /// Names of properties that do not travel in this direction.
    fn one_way_only(&self, members: &Map<String, Value>) -> BTreeSet<String> {
        let mark = match self.direction {
            Direction::Input => "readOnly",
            Direction::Output => "writeOnly",
        };
        let properties = members.get("properties").and_then(Value::as_object);
        let other_way = |(_, property): &(&String, &Value)| property.get(mark) == Some(&Value::Bool(true));
        let names = properties.into_iter().flatten().filter(other_way);
        names.map(|(name, _)| name.clone()).collect()
    }

    fn keyword(
        &mut self,
        out: &mut Map<String, Value>,
        members: &'a Map<String, Value>,
        dropped: &BTreeSet<String>,
        (keyword, value): (&str, &'a Value),
        depth: usize,
    ) -> Result<(), Refusal> {
        let deeper = depth.saturating_add(1);
        let kept = match keyword {
            "type" => types(value),
            "title" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => {
                value.as_str().map(|text| cut(text, 500).into())
            }
            "description" => value.as_str().map(|text| cut(text, self.longest_text()).into()),
            "default" | "const" => is_within(value, MAX_EXAMPLE).then(|| value.clone()),
            "enum" => value
                .as_array()
                .filter(|values| !values.is_empty() && is_within(value, MAX_ENUM))
                .map(|_| value.clone()),
            "example" => is_within(value, MAX_EXAMPLE).then(|| json!([value])),
            "examples" => (value.is_array() && is_within(value, MAX_EXAMPLE)).then(|| value.clone()),
            "minimum" | "maximum" => value.is_number().then(|| value.clone()),
            "exclusiveMinimum" | "exclusiveMaximum" => {
                (value.is_number() || value.is_boolean()).then(|| value.clone())
            }
            "multipleOf" => value
                .as_f64()
                .filter(|number| *number > 0.0)
                .map(|_| value.clone()),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
            | "minContains" | "maxContains" => value.as_u64().map(Value::from),
            "uniqueItems" | "readOnly" | "writeOnly" | "deprecated" => {
                value.is_boolean().then(|| value.clone())
            }
            "required" => required(value, dropped),
            "dependentRequired" => value.is_object().then(|| value.clone()),
            "properties" => Some(self.map(value, dropped, deeper)?),
            "patternProperties" | "dependentSchemas" => Some(self.map(value, &BTreeSet::new(), deeper)?),
            "items" if value.is_array() => {
                let items = self.list(value, deeper)?;
                if let Some(items) = items {
                    out.insert("prefixItems".to_owned(), items);
                }
                None
            }
            "prefixItems" | "allOf" | "anyOf" => self.list(value, deeper)?,
            "oneOf" => {
                let list = self.list(value, deeper)?;
                if let Some(list) = list {
                    self.one_of(out, members, value, list);
                }
                None
            }
            "items"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames"
            | "additionalProperties"
            | "unevaluatedItems"
            | "unevaluatedProperties" => (value.is_object() || value.is_boolean())
                .then(|| self.at(value, deeper))
                .transpose()?,
            // Annotations of OpenAPI, identifiers that the converted schema has no use for, extensions.
            _ => None,
        };
        if let Some(kept) = kept {
            let keyword = if keyword == "example" { "examples" } else { keyword };
            out.insert(keyword.to_owned(), kept);
        }
        Ok(())
    }

    const fn longest_text(&self) -> usize {
        match self.direction {
            Direction::Input => 1000,
            Direction::Output => 200,
        }
    }

    fn map(&mut self, value: &'a Value, without: &BTreeSet<String>, depth: usize) -> Result<Value, Refusal> {
        let mut out = Map::new();
        for (name, schema) in value.as_object().into_iter().flatten() {
            if !without.contains(name) {
                out.insert(name.clone(), self.at(schema, depth)?);
            }
        }
        Ok(Value::Object(out))
    }

    fn list(&mut self, value: &'a Value, depth: usize) -> Result<Option<Value>, Refusal> {
        let items = value.as_array().filter(|items| !items.is_empty());
        let Some(items) = items else { return Ok(None) };
        if items.len() > MAX_LIST {
            return Err(Refusal::TooLarge("schema"));
        }
        let converted: Result<Vec<Value>, Refusal> = items.iter().map(|item| self.at(item, depth)).collect();
        converted.map(|items| Some(Value::Array(items)))
    }

    /// `oneOf`. With a discriminator each branch says for which value it is. Without one, what goes to the provider
    /// must fit one branch at least: documents seldom make branches exclude each other, and a caller could not help
    /// that.
    fn one_of(
        &self,
        out: &mut Map<String, Value>,
        members: &Map<String, Value>,
        source: &Value,
        list: Value,
    ) {
        let property = members
            .get("discriminator")
            .and_then(|by| by.get("propertyName"))
            .and_then(Value::as_str);
        let Some(property) = property else {
            let keyword = match self.direction {
                Direction::Input if !out.contains_key("anyOf") && !members.contains_key("anyOf") => "anyOf",
                Direction::Input | Direction::Output => "oneOf",
            };
            out.insert(keyword.to_owned(), list);
            return;
        };
        let mapping = members.get("discriminator").and_then(|by| by.get("mapping"));
        let mut branches = Vec::new();
        let sources = source.as_array().into_iter().flatten();
        let Value::Array(list) = list else { return };
        for (branch, source) in list.into_iter().zip(sources) {
            branches.push(self.discriminated(branch, source, property, mapping));
        }
        out.insert("oneOf".to_owned(), Value::Array(branches));
    }

    fn discriminated(&self, branch: Value, source: &Value, property: &str, mapping: Option<&Value>) -> Value {
        let Some(reference) = reference(source) else {
            return branch;
        };
        let implied = reference.rsplit('/').next().unwrap_or_default();
        let leads_here = |target: &Value| {
            target
                .as_str()
                .is_some_and(|target| target == reference || target == implied)
        };
        let mapping = mapping.and_then(Value::as_object);
        let mut values: Vec<Value> = mapping
            .into_iter()
            .flatten()
            .take(MAX_LIST)
            .filter(|(_, target)| leads_here(target))
            .map(|(value, _)| Value::String(value.clone()))
            .collect();
        if values.is_empty() {
            let says_itself = self.document.lookup(reference).ok().and_then(|target| {
                let property = target.get("properties")?.get(property)?;
                property.get("enum").or_else(|| property.get("const"))
            });
            if says_itself.is_some() {
                return branch;
            }
            values.push(implied.into());
        }
        let Value::Object(mut branch) = branch else {
            return branch;
        };
        branch.insert("properties".to_owned(), json!({ property: { "enum": values } }));
        branch.insert("required".to_owned(), json!([property]));
        Value::Object(branch)
    }
}

/// Whether a value as JSON has at most so many bytes; what is longer is not written out for that.
pub(super) fn is_within(value: &Value, most: usize) -> bool {
    struct Room(usize);
    impl std::io::Write for Room {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(std::io::ErrorKind::OutOfMemory)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Room(most), value).is_ok()
}

/// How long a value is as JSON.
pub(super) fn size(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
}

fn types(value: &Value) -> Option<Value> {
    const KNOWN: [&str; 7] = [
        "null", "boolean", "object", "array", "number", "string", "integer",
    ];
    let known = |value: &Value| value.as_str().is_some_and(|name| KNOWN.contains(&name));
    match value {
        Value::String(_) => known(value).then(|| value.clone()),
        Value::Array(items) => {
            let mut kept: Vec<Value> = Vec::new();
            for item in items.iter().filter(|item| known(item)) {
                if !kept.contains(item) {
                    kept.push(item.clone());
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn required(value: &Value, dropped: &BTreeSet<String>) -> Option<Value> {
    let mut names: Vec<Value> = Vec::new();
    for name in value.as_array()?.iter().take(MAX_LIST) {
        let text = name.as_str()?;
        if !dropped.contains(text) && !names.contains(name) {
            names.push(name.clone());
        }
    }
    (!names.is_empty()).then_some(Value::Array(names))
}

/// OpenAPI 3.0: `exclusiveMinimum: true` says that `minimum` is outside.
fn exclusive(out: &mut Map<String, Value>, keyword: &str, bound: &str) {
    match out.get(keyword) {
        Some(Value::Bool(true)) => match out.remove(bound) {
            Some(value) => drop(out.insert(keyword.to_owned(), value)),
            None => drop(out.remove(keyword)),
        },
        Some(Value::Bool(false)) => drop(out.remove(keyword)),
        Some(_) | None => {}
    }
}

/// OpenAPI 3.0: `nullable: true`.
fn nullable(mut out: Map<String, Value>) -> Map<String, Value> {
    let nothing = json!({ "type": "null" });
    if let Some(Value::Array(values)) = out.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match out.get_mut("type") {
        Some(Value::Array(types)) if !types.contains(&json!("null")) => types.push("null".into()),
        Some(Value::String(one)) if one != "null" => {
            let both = json!([one, "null"]);
            out.insert("type".to_owned(), both);
        }
        Some(_) | None => {}
    }
    if out.contains_key("$ref") || out.contains_key("allOf") || out.contains_key("const") {
        return Map::from_iter([("anyOf".to_owned(), json!([Value::Object(out), nothing]))]);
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(Value::Array(branches)) = out.get_mut(keyword)
            && !branches.contains(&nothing)
        {
            branches.push(nothing.clone());
        }
    }
    out
}
