//! What an operation answers when it succeeds.

use serde_json::{Map, Value};

use super::arguments::example;
use super::body::is_json;
use super::document::{Document, Refusal};
use super::schema::{Direction, Schemas, size};
use super::words::cut;

/// Largest schema of an answer; a larger one is left out.
const MAX_OUTPUT: usize = 64 * 1024;

/// The answer of a success.
#[derive(Default)]
pub(super) struct Success {
    /// Its schema.
    pub(super) schema: Option<Value>,
    /// An example that the document gives.
    pub(super) example: Option<Value>,
    /// Whether it may have no body.
    pub(super) may_be_empty: bool,
}

/// Reads what the 2xx answers of an operation are.
pub(super) fn success<'a>(
    document: &'a Document<'a>,
    operation: &'a Map<String, Value>,
) -> Result<Success, Refusal> {
    let Some(responses) = operation.get("responses").and_then(Value::as_object) else {
        return Ok(Success {
            may_be_empty: true,
            ..Success::default()
        });
    };
    let mut good: Vec<&'a Value> = Vec::new();
    for wanted in ["200", "201"] {
        good.extend(responses.get(wanted));
    }
    let other = |status: &str| status.starts_with('2') && !matches!(status, "200" | "201");
    good.extend(
        responses
            .iter()
            .filter(|(status, _)| other(status))
            .map(|(_, response)| response),
    );
    if good.is_empty() {
        good.extend(responses.get("default"));
    }
    if good.is_empty() && responses.keys().any(|status| status.starts_with('3')) {
        return Err(Refusal::kind("it answers with a redirect, which is not followed"));
    }
    let mut found = Success::default();
    let mut refused = None;
    let mut json = false;
    for response in good {
        let response = document.resolve(response)?;
        let content = response.get("content").and_then(Value::as_object);
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            found.may_be_empty = true;
            continue;
        };
        let Some((_, media)) = content.iter().find(|(kind, _)| is_json(kind)) else {
            refused = content.keys().next().map(|kind| cut(kind, 60));
            continue;
        };
        if json {
            continue;
        }
        json = true;
        found.example = example(document, media);
        found.schema = media
            .get("schema")
            .map(|schema| shape(document, schema))
            .transpose()?
            .flatten();
    }
    match refused {
        Some(kind) if !json && !found.may_be_empty => {
            Err(Refusal::Kind(format!("it answers {kind}, which is no JSON")))
        }
        Some(_) | None => Ok(found),
    }
}

/// The schema of an answer with its definitions, unless it is too large to be of use.
fn shape<'a>(document: &'a Document<'a>, schema: &'a Value) -> Result<Option<Value>, Refusal> {
    let mut schemas = Schemas::new(document, Direction::Output);
    let Value::Object(mut members) = schemas.convert(document.resolve(schema)?)? else {
        return Ok(None);
    };
    let used = size(&Value::Object(members.clone()));
    let definitions = schemas.definitions(used)?;
    if !definitions.is_empty() {
        members.insert("$defs".to_owned(), Value::Object(definitions));
    }
    let shape = Value::Object(members);
    Ok((size(&shape) <= MAX_OUTPUT).then_some(shape))
}
