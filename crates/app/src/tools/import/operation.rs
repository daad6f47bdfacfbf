//! One operation as a tool.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use turnpike_upstream::tool::percent_encode;
use turnpike_upstream::{ArgsIn, HttpEndpoint, ToolMethod};

use super::ImportOptions;
use super::arguments::Arguments;
use super::document::{Document, Found, Refusal, servers};
use super::examples::{Members, plainest};
use super::names::{matches, slug, unique};
use super::responses::{Success, success};
use super::schema::{Direction, Schemas, size};
use super::words::{MAX_DESCRIPTION, MAX_SUMMARY, MAX_TITLE, cut, first_sentence, plain};
use crate::tools::definition::{Effects, ToolDefinition, ToolEntry};

/// Most tags of an operation that are kept.
const MAX_TAGS: usize = 8;
/// Longest path.
const MAX_PATH: usize = 500;
/// Largest example.
const MAX_EXAMPLE: usize = 16 * 1024;

/// The tool that an operation is; `None` when it was not asked for.
pub(super) fn tool<'a>(
    document: &'a Document<'a>,
    found: &Found<'a>,
    options: &ImportOptions,
    taken: &mut BTreeSet<String>,
    left_out: &mut BTreeMap<String, usize>,
) -> Result<Option<ToolDefinition>, Refusal> {
    let operation = found.operation;
    let tags = tags(operation);
    let name = name(found);
    let asked = |pattern: &String| matches(pattern, &name) || tags.iter().any(|tag| matches(pattern, tag));
    if !options.only.is_empty() && !options.only.iter().any(asked) {
        return Ok(None);
    }
    if operation.get("deprecated") == Some(&Value::Bool(true)) && !options.deprecated {
        return Err(Refusal::kind("it is deprecated"));
    }
    let (method, effects) = match found.method {
        "get" => (ToolMethod::Get, Effects::Reads),
        "post" => (ToolMethod::Post, Effects::Writes),
        "put" => (ToolMethod::Put, Effects::Writes),
        "patch" => (ToolMethod::Patch, Effects::Writes),
        "delete" => (ToolMethod::Delete, Effects::Destroys),
        _ => {
            return Err(Refusal::kind(
                "HEAD, OPTIONS and TRACE answer nothing that is of use",
            ));
        }
    };
    check_servers(document, found)?;
    let success = success(document, operation)?;
    let mut schemas = Schemas::new(document, Direction::Input);
    let mut arguments = Arguments::default();
    arguments.parameters(document, found, &mut schemas, left_out)?;
    let body = arguments.body(document, found, &mut schemas)?;
    let mut schema = json!({ "type": "object", "properties": arguments.properties });
    if !arguments.required.is_empty() {
        schema["required"] = Value::Array(std::mem::take(&mut arguments.required));
    }
    schema["additionalProperties"] = false.into();
    let definitions = schemas.definitions(size(&schema))?;
    if !definitions.is_empty() {
        schema["$defs"] = Value::Object(definitions);
    }
    let http = HttpEndpoint {
        method,
        path: path(found.path)?,
        args_in: ArgsIn::Query,
        args: arguments.settings,
        encoding: body.encoding,
        content_type: body.content_type,
        may_be_empty: success.may_be_empty,
        quote: None,
    };
    let text = |member: &str| operation.get(member).and_then(Value::as_str).unwrap_or_default();
    let (title, summary) = titles(found, text("summary"), text("description"));
    let definition = ToolDefinition {
        title,
        summary,
        description: cut(text("description"), MAX_DESCRIPTION),
        category: tags.first().cloned(),
        packs: tags,
        schema,
        http: Some(http),
        effects,
        ..ToolDefinition::default()
    };
    let mut definition = checked(definition)?;
    add_examples(&mut definition, arguments.examples, success);
    definition.name = unique(&name, '-', taken);
    Ok(Some(definition))
}

/// The operation's own name, or its method and path.
fn name(found: &Found<'_>) -> String {
    let id = found.operation.get("operationId").and_then(Value::as_str);
    let own = slug(id.unwrap_or_default());
    if !own.is_empty() {
        return own;
    }
    let name = slug(&format!(
        "{} {}",
        found.method,
        found.path.replace(['{', '}'], "")
    ));
    if name.is_empty() { "tool".to_owned() } else { name }
}

fn tags(operation: &Map<String, Value>) -> Vec<String> {
    let listed = operation.get("tags").and_then(Value::as_array);
    let mut tags: Vec<String> = Vec::new();
    for tag in listed.into_iter().flatten().filter_map(Value::as_str) {
        let tag = slug(tag);
        if !tag.is_empty() && !tags.contains(&tag) && tags.len() < MAX_TAGS {
            tags.push(tag);
        }
    }
    tags
}

/// A name and a sentence for people, whatever the document has of them.
fn titles(found: &Found<'_>, summary: &str, description: &str) -> (String, String) {
    let summary = plain(summary);
    let said = first_sentence(description);
    let title = if summary.is_empty() {
        let words = name(found).replace('-', " ");
        let mut letters = words.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_ascii_uppercase().to_string() + letters.as_str()
        })
    } else {
        summary.trim_end_matches('.').to_owned()
    };
    let sentence = if said.is_empty() { &title } else { &said };
    (cut(&title, MAX_TITLE), cut(sentence, MAX_SUMMARY))
}

/// All requests of a provider go to one base URL, so an operation that lives elsewhere cannot be called.
fn check_servers(document: &Document<'_>, found: &Found<'_>) -> Result<(), Refusal> {
    let own = |holder: &Map<String, Value>| {
        holder
            .get("servers")
            .map(|list| servers(&json!({ "servers": list })))
    };
    let elsewhere = own(found.operation)
        .or_else(|| own(found.item))
        .unwrap_or_default();
    if elsewhere.is_empty() {
        return Ok(());
    }
    let usual = document.servers();
    if !usual.is_empty() && !elsewhere.iter().any(|url| usual.contains(url)) {
        return Err(Refusal::Kind(format!(
            "it is at {:?}, unlike the rest",
            elsewhere.join(", ")
        )));
    }
    Ok(())
}

/// The path as a template, in which everything but the placeholders can stand in a URL.
fn path(path: &str) -> Result<String, Refusal> {
    let unusable = || Refusal::kind("its path cannot be called");
    if path.len() > MAX_PATH || !path.starts_with('/') || path.contains(['#', '\\']) {
        return Err(unusable());
    }
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut template = String::with_capacity(path.len());
    let mut inside = false;
    for letter in path.chars() {
        match letter {
            '{' | '}' if inside == (letter == '{') => return Err(unusable()),
            '{' | '}' => {
                inside = letter == '{';
                template.push(letter);
            }
            _ if letter.is_control() => return Err(unusable()),
            _ if inside || letter.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/%".contains(letter) => {
                template.push(letter);
            }
            _ => {
                percent_encode(&mut template, letter.encode_utf8(&mut [0; 4]));
            }
        }
    }
    if inside {
        return Err(unusable());
    }
    // Not OpenAPI, but to be met: `?beta=true` always goes along, `?q={q}` is a parameter of its own.
    let constant = |pair: &&str| {
        let pair = pair.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~=%".contains(byte);
        !pair.is_empty() && pair.iter().all(plain)
    };
    for (index, pair) in query.split('&').filter(constant).enumerate() {
        template.push(if index == 0 { '?' } else { '&' });
        template.push_str(pair);
    }
    Ok(template)
}

/// The definition when it works; without its patterns when they are what does not.
fn checked(mut definition: ToolDefinition) -> Result<ToolDefinition, Refusal> {
    let unusable = |error: String| Refusal::Kind(format!("it is unusable: {}", cut(&error, 200)));
    let Err(_first) = ToolEntry::new(definition.clone()) else {
        return Ok(definition);
    };
    without_patterns(&mut definition.schema);
    match ToolEntry::new(definition.clone()) {
        Ok(_usable) => Ok(definition),
        Err(error) => Err(unusable(error)),
    }
}

/// Regular expressions of another dialect are not checked; the provider knows its own.
fn without_patterns(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("pattern").is_some_and(Value::is_string) {
                members.remove("pattern");
            }
            members.remove("patternProperties");
            members.values_mut().for_each(without_patterns);
        }
        Value::Array(items) => items.iter_mut().for_each(without_patterns),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Adds what the document shows, or the plainest values, as far as they fit.
fn add_examples(definition: &mut ToolDefinition, given: Map<String, Value>, success: Success) {
    let plain = plainest(&definition.schema, &definition.schema, Members::Required);
    let mut shown = plain.as_object().cloned().unwrap_or_default();
    shown.extend(given);
    if let Ok(tool) = ToolEntry::new(definition.clone()) {
        let fitting = [Value::Object(shown), plain]
            .into_iter()
            .find(|args| size(args) <= MAX_EXAMPLE && tool.checked(args.clone()).is_ok());
        definition.example_args = fitting;
    }
    let made = |schema: &Value| plainest(schema, schema, Members::All);
    let answer = success.example.or_else(|| success.schema.as_ref().map(made));
    definition.example = answer.filter(|answer| size(answer) <= MAX_EXAMPLE);
    definition.output_schema = success.schema;
}
