//! Bodies of requests: an object's properties become arguments; every other body is one argument.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use turnpike_upstream::{ArgPlace, ArgStyle, BodyEncoding};

use super::arguments::{Arguments, example};
use super::document::{Document, Found, Refusal};
use super::schema::Schemas;
use super::words::cut;

/// Deepest nesting of `allOf` that is merged.
const MAX_MERGED: usize = 8;

/// Most properties that become arguments of their own.
const MAX_PROPERTIES: usize = 200;

/// How a body is sent.
#[derive(Default)]
pub(super) struct Body {
    pub(super) encoding: BodyEncoding,
    pub(super) content_type: Option<String>,
}

/// Whether a media type is JSON.
pub(super) fn is_json(kind: &str) -> bool {
    let kind = kind
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    matches!(
        kind.as_str(),
        "application/json" | "text/json" | "*/*" | "application/*"
    ) || (kind.ends_with("+json") && kind.contains('/'))
}

impl Arguments {
    /// The body of an operation, if it has one.
    pub(super) fn body<'a>(
        &mut self,
        document: &'a Document<'a>,
        found: &Found<'a>,
        schemas: &mut Schemas<'a>,
    ) -> Result<Body, Refusal> {
        let mut sent = Body::default();
        let Some(body) = found.operation.get("requestBody") else {
            return Ok(sent);
        };
        let body = document.resolve(body)?;
        let required = body.get("required") == Some(&Value::Bool(true));
        let content = body.get("content").and_then(Value::as_object);
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            return Ok(sent);
        };
        let Some((kind, media, encoding)) = media(content) else {
            if required {
                let kinds: Vec<String> = content.keys().take(3).map(|kind| cut(kind, 60)).collect();
                let text = format!("it takes {}, which no arguments can fill", kinds.join(", "));
                return Err(Refusal::Kind(text));
            }
            return Ok(sent);
        };
        if found.method == "get" {
            return if required {
                Err(Refusal::kind("it is a GET with a body"))
            } else {
                Ok(sent)
            };
        }
        sent.encoding = encoding;
        let exact = kind.split(';').next().unwrap_or_default().trim();
        if encoding == BodyEncoding::Json && exact.to_ascii_lowercase().ends_with("+json") {
            sent.content_type = Some(exact.to_owned());
        }
        let whole_example = example(document, media);
        let empty = &Value::Bool(true);
        let schema = media.get("schema").unwrap_or(empty);
        let flat = self.flat(document, schema)?;
        let Some(flat) = flat else {
            let schema = match media.get("schema") {
                Some(schema) => schemas.convert(schema)?,
                None => Value::Object(Map::new()),
            };
            let arg = self.add("body", ArgPlace::WholeBody, ArgStyle::Deep, schema, required)?;
            if let Some(example) = whole_example {
                self.examples.insert(arg, example);
            }
            return Ok(sent);
        };
        for (name, schema) in flat.properties {
            let style = form_style(media, name);
            let required = flat.required.contains(name);
            let converted = schemas.convert(schema)?;
            let arg = self.add(name, ArgPlace::Body, style, converted, required)?;
            if let Some(example) = whole_example.as_ref().and_then(|whole| whole.get(name)) {
                self.examples.insert(arg, example.clone());
            }
        }
        Ok(sent)
    }

    /// The properties of an object that can stand among the other arguments.
    fn flat<'a>(&self, document: &Document<'a>, schema: &'a Value) -> Result<Option<Flat<'a>>, Refusal> {
        let mut flat = Flat::default();
        if !flatten(document, schema, &mut flat, 0)? || flat.properties.is_empty() {
            return Ok(None);
        }
        let clash = flat.properties.iter().any(|(name, _)| self.has(name));
        let mut args = BTreeSet::new();
        let twice = flat
            .properties
            .iter()
            .any(|(name, _)| !args.insert(super::names::argument(name)));
        Ok((!clash && !twice).then_some(flat))
    }
}

/// An object's properties in the order of the document.
#[derive(Default)]
struct Flat<'a> {
    properties: Vec<(&'a str, &'a Value)>,
    required: BTreeSet<&'a str>,
}

/// Gathers the properties of an object, also where `allOf` puts it together; `false` when it is more than that.
fn flatten<'a>(
    document: &Document<'a>,
    schema: &'a Value,
    flat: &mut Flat<'a>,
    depth: usize,
) -> Result<bool, Refusal> {
    let schema = document.resolve(schema)?;
    document.step();
    if document.is_spent() {
        return Err(Refusal::TooLarge("body"));
    }
    let Some(members) = schema.as_object().filter(|_| depth < MAX_MERGED) else {
        return Ok(false);
    };
    for (keyword, value) in members {
        let plain = match keyword.as_str() {
            "type" => value == "object" || *value == serde_json::json!(["object"]),
            "additionalProperties" | "nullable" => *value == Value::Bool(false),
            "properties" | "required" | "allOf" | "title" | "description" | "example" | "examples"
            | "default" | "deprecated" | "externalDocs" | "xml" | "$schema" | "$comment" | "readOnly"
            | "writeOnly" => true,
            other => other.starts_with("x-"),
        };
        if !plain {
            return Ok(false);
        }
    }
    let properties = members.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if property.get("readOnly") == Some(&Value::Bool(true)) {
            continue;
        }
        match flat.properties.iter().find(|(known, _)| known == name) {
            Some((_, known)) if *known == property => {}
            Some(_) => return Ok(false),
            None if flat.properties.len() >= MAX_PROPERTIES => return Ok(false),
            None => flat.properties.push((name, property)),
        }
    }
    let required = members.get("required").and_then(Value::as_array);
    flat.required
        .extend(required.into_iter().flatten().filter_map(Value::as_str));
    let parts = members.get("allOf").and_then(Value::as_array);
    for part in parts.into_iter().flatten() {
        if !flatten(document, part, flat, depth.saturating_add(1))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The media type of a body that is sent: JSON before a form.
fn media(content: &Map<String, Value>) -> Option<(&str, &Value, BodyEncoding)> {
    let exact = content.iter().find(|(kind, _)| kind.trim() == "application/json");
    let json = exact.or_else(|| content.iter().find(|(kind, _)| is_json(kind)));
    if let Some((kind, media)) = json {
        return Some((kind, media, BodyEncoding::Json));
    }
    let form = |kind: &str| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    };
    let (kind, media) = content.iter().find(|(kind, _)| form(kind))?;
    Some((kind, media, BodyEncoding::Form))
}

/// How a member of a form is written.
fn form_style(media: &Value, name: &str) -> ArgStyle {
    let encoding = media.get("encoding").and_then(|encoding| encoding.get(name));
    let Some(encoding) = encoding else {
        return ArgStyle::Repeat;
    };
    if encoding
        .get("contentType")
        .and_then(Value::as_str)
        .is_some_and(is_json)
    {
        return ArgStyle::Json;
    }
    let explode = encoding.get("explode").and_then(Value::as_bool);
    match encoding.get("style").and_then(Value::as_str) {
        Some("deepObject") => ArgStyle::Deep,
        Some("spaceDelimited") if explode != Some(true) => ArgStyle::Space,
        Some("pipeDelimited") if explode != Some(true) => ArgStyle::Pipe,
        Some("form") | None if explode == Some(false) => ArgStyle::Comma,
        Some(_) | None => ArgStyle::Repeat,
    }
}
