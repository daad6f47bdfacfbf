//! A tool's arguments: the parameters of an operation, under names that do not clash, and where each goes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use turnpike_upstream::tool::{is_argument_header, is_credential_name};
use turnpike_upstream::{ArgPlace, ArgSettings, ArgStyle};

use super::document::{Document, Found, Refusal};
use super::names::{argument, unique};
use super::schema::{Schemas, is_within};
use super::words::cut;

/// Most arguments of a tool.
const MAX_ARGUMENTS: usize = 300;

/// Arguments as they are gathered.
#[derive(Default)]
pub(super) struct Arguments {
    pub(super) properties: Map<String, Value>,
    pub(super) required: Vec<Value>,
    pub(super) settings: BTreeMap<String, ArgSettings>,
    pub(super) examples: Map<String, Value>,
    taken: BTreeSet<String>,
}

impl Arguments {
    /// Whether an argument has the name that `name` would get.
    pub(super) fn has(&self, name: &str) -> bool {
        self.taken.contains(&argument(name))
    }

    /// Adds an argument under its own name, or under one that says where it goes.
    pub(super) fn add(
        &mut self,
        name: &str,
        place: ArgPlace,
        style: ArgStyle,
        schema: Value,
        required: bool,
    ) -> Result<String, Refusal> {
        if self.properties.len() >= MAX_ARGUMENTS {
            return Err(Refusal::TooLarge("list of arguments"));
        }
        let wanted = argument(name);
        let wanted = if self.taken.contains(&wanted) {
            let place = match place {
                ArgPlace::Path => "path",
                ArgPlace::Query => "query",
                ArgPlace::Header => "header",
                ArgPlace::Cookie => "cookie",
                ArgPlace::Body | ArgPlace::WholeBody => "body",
            };
            argument(&format!("{place}_{name}"))
        } else {
            wanted
        };
        let arg = unique(&wanted, '_', &mut self.taken);
        self.properties.insert(arg.clone(), schema);
        if required {
            self.required.push(arg.as_str().into());
        }
        let settings = ArgSettings {
            place,
            name: (arg != name).then(|| name.to_owned()),
            style,
        };
        self.settings.insert(arg.clone(), settings);
        Ok(arg)
    }

    /// The parameters of an operation and of the path that it stands under.
    pub(super) fn parameters<'a>(
        &mut self,
        document: &'a Document<'a>,
        found: &Found<'a>,
        schemas: &mut Schemas<'a>,
        left_out: &mut BTreeMap<String, usize>,
    ) -> Result<(), Refusal> {
        let mut parameters: Vec<(String, String, &'a Value)> = Vec::new();
        for holder in [found.item, found.operation] {
            let listed = holder.get("parameters").and_then(Value::as_array);
            for parameter in listed.into_iter().flatten() {
                if parameters.len() > MAX_ARGUMENTS {
                    return Err(Refusal::TooLarge("list of arguments"));
                }
                let parameter = document.resolve(parameter)?;
                let text = |member: &str| parameter.get(member).and_then(Value::as_str).unwrap_or_default();
                let (place, name) = (text("in").to_owned(), text("name").to_owned());
                // What the operation says goes before what its path says.
                parameters.retain(|(other, known, _)| (other, known) != (&place, &name));
                parameters.push((place, name, parameter));
            }
        }
        let mut in_path: BTreeSet<&str> = placeholders(found.path).collect();
        for (place, name, parameter) in parameters {
            let place = match place.as_str() {
                "path" if in_path.remove(name.as_str()) => ArgPlace::Path,
                "path" => continue,
                "query" => ArgPlace::Query,
                "header" => ArgPlace::Header,
                "cookie" => ArgPlace::Cookie,
                _ => return Err(Refusal::kind("it has a parameter of an unknown kind")),
            };
            self.parameter(document, place, &name, parameter, schemas, left_out)?;
        }
        // Documents forget to declare them.
        for name in in_path {
            let schema = json!({ "type": "string", "minLength": 1 });
            self.add(name, ArgPlace::Path, ArgStyle::Repeat, schema, true)?;
        }
        Ok(())
    }

    fn parameter<'a>(
        &mut self,
        document: &Document<'a>,
        place: ArgPlace,
        name: &str,
        parameter: &'a Value,
        schemas: &mut Schemas<'a>,
        left_out: &mut BTreeMap<String, usize>,
    ) -> Result<(), Refusal> {
        let flag = |member: &str| parameter.get(member) == Some(&Value::Bool(true));
        let secret = document.is_credential(name)
            || match place {
                ArgPlace::Header => !is_argument_header(name),
                ArgPlace::Cookie | ArgPlace::Query => is_credential_name(name),
                ArgPlace::Path | ArgPlace::Body | ArgPlace::WholeBody => false,
            };
        if secret || name.is_empty() || name.chars().any(char::is_control) {
            // Who calls is the operator's to say; the media types are ours.
            let usual = name.eq_ignore_ascii_case("accept") || name.eq_ignore_ascii_case("content-type");
            if !usual {
                let count = left_out.entry(cut(name, 100)).or_default();
                *count = count.saturating_add(1);
            }
            return Ok(());
        }
        if flag("deprecated") && !flag("required") {
            return Ok(());
        }
        let (schema, style) = match schema_and_style(place, parameter) {
            Ok(found) => found,
            Err(_unusable) if !flag("required") => return Ok(()),
            Err(unusable) => return Err(unusable),
        };
        let mut converted = match schema {
            Some(schema) => schemas.convert(schema)?,
            None => json!({ "type": "string" }),
        };
        if let (Value::Object(members), Some(text)) = (
            &mut converted,
            parameter.get("description").and_then(Value::as_str),
        ) {
            members.insert("description".to_owned(), cut(text, 1000).into());
        }
        let arg = self.add(
            name,
            place,
            style,
            converted,
            place == ArgPlace::Path || flag("required"),
        )?;
        if let Some(example) = example(document, parameter) {
            self.examples.insert(arg, example);
        }
        Ok(())
    }
}

/// The names in braces of a path.
pub(super) fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    let (path, _query) = path.split_once('?').unwrap_or((path, ""));
    let parts = path.split('{').skip(1);
    parts.filter_map(|part| part.split_once('}').map(|(name, _)| name))
}

/// The schema of a parameter, and how it is written.
fn schema_and_style(place: ArgPlace, parameter: &Value) -> Result<(Option<&Value>, ArgStyle), Refusal> {
    if let Some(content) = parameter.get("content").and_then(Value::as_object) {
        let json = content.iter().find(|(kind, _)| super::body::is_json(kind));
        let (_, media) = json.ok_or_else(|| Refusal::kind("it has a parameter that is no JSON"))?;
        return Ok((media.get("schema"), ArgStyle::Json));
    }
    let schema = parameter.get("schema");
    // As Swagger 2 had it.
    let schema = schema.or_else(|| parameter.get("type").is_some().then_some(parameter));
    let style = parameter.get("style").and_then(Value::as_str);
    let explode = parameter.get("explode").and_then(Value::as_bool);
    let style = match (place, style) {
        (ArgPlace::Path | ArgPlace::Header, None | Some("simple")) => ArgStyle::Comma,
        (ArgPlace::Path | ArgPlace::Header, Some(_)) => {
            return Err(Refusal::kind(
                "it has a parameter of a style that cannot be written",
            ));
        }
        (_, Some("spaceDelimited")) if explode != Some(true) => ArgStyle::Space,
        (_, Some("pipeDelimited")) if explode != Some(true) => ArgStyle::Pipe,
        (_, Some("deepObject")) => ArgStyle::Deep,
        (_, None | Some("form")) if explode == Some(false) => ArgStyle::Comma,
        (_, None | Some(_)) => ArgStyle::Repeat,
    };
    Ok((schema, style))
}

/// An example that a parameter or a media type gives itself.
pub(super) fn example(document: &Document<'_>, holder: &Value) -> Option<Value> {
    let listed = || {
        let examples = holder.get("examples")?.as_object()?;
        let first = examples.values().next()?;
        // What lies elsewhere (`externalValue`) is not fetched.
        let first = match super::document::reference(first) {
            Some(reference) => document.lookup(reference).ok()?,
            None => first,
        };
        first.get("value")
    };
    let found = holder.get("example").or_else(listed)?;
    is_within(found, 16 * 1024).then(|| found.clone())
}
