//! What a tool is: its arguments, its price, how it is called, and what people and agents read of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use turnpike_core::errors::ErrorCode;
use turnpike_core::pricing::{CompiledEndpointPrice, EndpointPrice};
use turnpike_upstream::{CallBounds, HttpEndpoint, ToolMethod};

use crate::error::AppError;
use crate::json::parse_object;

/// What a call changes at the provider, as far as it is known; agents ask before they do harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effects {
    /// Nothing.
    Reads,
    /// Something; a repeat may change it again.
    #[default]
    Writes,
    /// It may destroy.
    Destroys,
}

/// A tool as it is configured or imported.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDefinition {
    /// The endpoint's part of the slug.
    pub name: String,
    /// Name for people.
    #[serde(default)]
    pub title: String,
    /// One sentence.
    #[serde(default)]
    pub summary: String,
    /// Everything that there is to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What kind of work it does: one word, like `weather`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Names of the groups that it belongs to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packs: Vec<String>,
    /// JSON Schema of its arguments.
    pub schema: Value,
    /// JSON Schema of what it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What a call costs; without a price it is shown and cannot be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<EndpointPrice>,
    /// How it is called; simulated tools need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpEndpoint>,
    /// An answer to show and to give to sandbox keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<Value>,
    /// Arguments to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example_args: Option<Value>,
    /// What it changes.
    #[serde(default)]
    pub effects: Effects,
    /// Longest a call may take, in seconds; the provider's limit where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u64>,
    /// Longest answer that is taken from the provider, in bytes; the provider's limit where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_answer_bytes: Option<u64>,
}

/// A tool that can be found and called.
#[derive(Debug)]
pub struct ToolEntry {
    /// What it is.
    pub definition: ToolDefinition,
    /// Changes whenever the definition does.
    pub revision: String,
    /// Its arguments' schema, compiled.
    validator: jsonschema::Validator,
    price: Option<CompiledEndpointPrice>,
}

/// Whether `text` can be one part of a tool's slug.
pub fn is_slug(text: &str) -> bool {
    text.bytes().next().is_some_and(|byte| byte != b'-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

impl ToolEntry {
    /// Compiles the schema and the price.
    ///
    /// # Errors
    /// What is wrong with them, for the operator.
    pub fn new(definition: ToolDefinition) -> Result<Self, String> {
        if let Some(http) = &definition.http {
            http.check()?;
        }
        if !super::weight::is_bearable(&definition.schema) {
            return Err("the schema looks at one value too often".to_owned());
        }
        let validator = jsonschema::validator_for(&definition.schema).map_err(|error| error.to_string())?;
        let price = definition.price.clone().map(EndpointPrice::compile).transpose();
        let price = price.map_err(|error| error.to_string())?;
        let text = serde_json::to_vec(&definition).map_err(|error| error.to_string())?;
        let revision = hex::encode(&Sha256::digest(&text)[..8]);
        Ok(Self {
            definition,
            revision,
            validator,
            price,
        })
    }

    /// What a call costs.
    ///
    /// # Errors
    /// `PRICE_UNAVAILABLE` where the operator has set no price: nothing is free by accident.
    pub fn price(&self) -> Result<&CompiledEndpointPrice, AppError> {
        let message = "this tool has no price, so it cannot be called";
        let refused = || AppError::new(ErrorCode::PriceUnavailable, message);
        self.price.as_ref().ok_or_else(refused)
    }

    /// What a call may take of its provider's time and size of answers.
    pub fn bounds(&self) -> CallBounds {
        let bytes = self.definition.max_answer_bytes;
        CallBounds {
            timeout: self.definition.timeout_secs.map(Duration::from_secs),
            max_answer_bytes: bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        }
    }

    /// The upstream's HTTP method; `POST` for a tool that is called otherwise.
    pub fn method(&self) -> &'static str {
        let http = self.definition.http.as_ref();
        match http.map(|http| http.method).unwrap_or_default() {
            ToolMethod::Get => "GET",
            ToolMethod::Post => "POST",
            ToolMethod::Put => "PUT",
            ToolMethod::Patch => "PATCH",
            ToolMethod::Delete => "DELETE",
        }
    }

    /// Whether the provider quotes each call.
    pub fn is_live(&self) -> bool {
        self.price.as_ref().is_some_and(CompiledEndpointPrice::is_live)
    }

    /// Reads a tool's arguments and checks them against its schema; no body means no arguments.
    pub(crate) fn read_args(&self, raw: &[u8]) -> Result<Value, AppError> {
        let args = if raw.is_empty() {
            Map::new()
        } else {
            parse_object(raw)?
        };
        self.checked(Value::Object(args))
    }

    /// Checks arguments against the schema.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` whose `details` name the places.
    pub(crate) fn checked(&self, args: Value) -> Result<Value, AppError> {
        let mut details = Vec::new();
        for error in self.validator.iter_errors(&args).take(10) {
            let path = error.instance_path().to_string();
            // The schema's words without the caller's value, which may be large or secret.
            details.push(json!({ "path": path, "message": error.masked().to_string() }));
        }
        if details.is_empty() {
            // What fits the schema need not fit a path or a header.
            let request = self.definition.http.as_ref().map(|http| http.request(&args));
            return match request {
                Some(Err(fault)) => Err(AppError::invalid(&format!("/{}", fault.arg), fault.reason)),
                Some(Ok(_)) | None => Ok(args),
            };
        }
        Err(AppError::new(
            ErrorCode::ValidationError,
            "the arguments do not fit the tool's schema",
        )
        .with("details", details))
    }
}
