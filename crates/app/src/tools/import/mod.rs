//! Tools out of OpenAPI 3 documents that others wrote.
//!
//! The rule: what is read is a document and never a program. Nothing is fetched, references stay inside the
//! document, every walk through it has a bound, and what cannot become a tool is left out with the reason. The
//! addresses in it are shown and never called. Nothing here does any I/O.

mod arguments;
mod body;
mod document;
mod examples;
mod names;
mod operation;
mod parse;
mod responses;
mod schema;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::document::Document;
pub use self::names::matches;
use super::definition::ToolDefinition;

/// Longest name of an operation that is told of, in characters.
const MAX_LABEL: usize = 200;

/// Most bytes of a document.
pub const MAX_DOCUMENT: usize = 32 * 1024 * 1024;
/// Most tools of one import.
pub const MAX_TOOLS: usize = 5000;
/// Most bytes of one import's tools as JSON.
pub const MAX_IMPORT: usize = 40 * 1024 * 1024;

/// What is wanted of a document.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Only tools whose name, or one of whose tags, matches one of these patterns; empty = all.
    pub only: Vec<String>,
    /// Deprecated operations, too.
    pub deprecated: bool,
}

/// Where tools came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSource {
    /// The document's title.
    pub title: String,
    /// Its version.
    pub version: String,
    /// The version of OpenAPI that it is written in.
    pub openapi: String,
    /// Where it says that the API is. A hint for people: requests go where the operator says.
    pub servers: Vec<String>,
    /// How it says that callers identify themselves.
    pub credentials: Vec<String>,
}

/// An operation that is no tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its method and path.
    pub operation: String,
    /// Why.
    pub reason: String,
}

/// What a document gives.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// The tools, without prices.
    pub tools: Vec<ToolDefinition>,
    /// What is no tool.
    pub skipped: Vec<Skipped>,
    /// What was left out of tools.
    pub notes: Vec<String>,
    /// The document.
    pub source: ImportSource,
}

/// Why a document gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It is too large.
    #[error("the document is larger than {MAX_DOCUMENT} bytes")]
    TooLarge,
    /// It is no JSON or YAML.
    #[error("the document cannot be read: {0}")]
    Malformed(String),
    /// It is no OpenAPI 3 document.
    #[error("{0}")]
    NotOpenApi(String),
    /// It would take more than is allowed.
    #[error("{0}; choose among its operations with --only")]
    TooMuch(String),
}

/// Reads a document.
///
/// # Errors
/// [`ImportError`] when nothing can be made of it.
pub fn import(text: &[u8], options: &ImportOptions) -> Result<Import, ImportError> {
    let root = parse::parse(text)?;
    let openapi = check_version(&root)?;
    let document = Document::new(&root);
    let mut import = Import {
        source: document.source(openapi),
        ..Import::default()
    };
    let mut taken = BTreeSet::new();
    let mut left_out = BTreeMap::new();
    let mut bytes = 0_usize;
    for found in document.operations() {
        let label = found.label();
        match operation::tool(&document, &found, options, &mut taken, &mut left_out) {
            Ok(None) => {}
            Ok(Some(tool)) => {
                bytes = bytes.saturating_add(serde_json::to_vec(&tool).map_or(usize::MAX, |text| text.len()));
                import.tools.push(tool);
            }
            Err(reason) => import.skipped.push(Skipped {
                operation: words::cut(&label, MAX_LABEL),
                reason: reason.to_string(),
            }),
        }
        if import.tools.len() > MAX_TOOLS {
            return Err(ImportError::TooMuch(format!(
                "the document has more than {MAX_TOOLS} tools"
            )));
        }
        if bytes > MAX_IMPORT || document.is_spent() {
            return Err(ImportError::TooMuch(
                "the document's schemas are too large".to_owned(),
            ));
        }
    }
    import.skipped.extend(document.skipped());
    let said = |(name, count): (String, usize)| {
        format!("{name:?} is no argument of {count} operations: who calls is configured")
    };
    import.notes = left_out.into_iter().take(100).map(said).collect();
    Ok(import)
}

fn check_version(root: &Value) -> Result<String, ImportError> {
    let wrong = |text: &str| Err(ImportError::NotOpenApi(text.to_owned()));
    if root.get("swagger").is_some() {
        return wrong("this is a Swagger 2 document: convert it to OpenAPI 3 first");
    }
    let version = match root.get("openapi") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(_) | None => return wrong("this is no OpenAPI document: `openapi` is missing"),
    };
    if !version.starts_with("3.") {
        return wrong("only OpenAPI 3 documents can be imported");
    }
    Ok(version.chars().take(20).collect())
}
