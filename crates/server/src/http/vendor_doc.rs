//! What the OpenAPI documents say about payments, and the document of the paid operations alone.
//!
//! Source: draft-payment-discovery-00 (`x-payment-info`, `x-service-info`).

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, header};
use serde_json::{Map, Value, json};
use turnpike_app::paid_calls::LIST_MODELS_FEE;
use utoipa::openapi::OpenApi;
use utoipa::openapi::extensions::ExtensionsBuilder;

use super::{App, openapi};

/// The path segment in our own documents and tables.
const SEGMENT: &str = "/vendor/";
const MAX_AGE: HeaderValue = HeaderValue::from_static("public, max-age=300");
/// The version of the paid operations' description (specification, section 9).
const VERSION: &str = "1.0.0";

/// What one call of a path costs; `None` for paths that are not paid.
fn offer(path: &str, currency: &str) -> Option<Value> {
    let (amount, description) = match path.strip_prefix(SEGMENT)? {
        "chat" | "fim" => (Value::Null, "Settled for what was used; the 402 names the most"),
        "list-models" => (json!(LIST_MODELS_FEE.get().to_string()), "A fixed fee"),
        _ => return None,
    };
    Some(json!({
        "intent": "charge", "method": "evm", "amount": amount, "currency": currency, "description": description,
    }))
}

/// Adds what the paid operations cost, in `currency`.
pub(super) fn add_offers(document: &mut OpenApi, currency: &str) {
    for (path, item) in &mut document.paths.paths {
        if let (Some(offer), Some(operation)) = (offer(path, currency), item.post.as_mut()) {
            operation.extensions = Some(ExtensionsBuilder::new().add("x-payment-info", offer).build());
        }
    }
    let service = json!({
        "categories": ["ai", "llm", "code"],
        "docs": { "apiReference": "/openapi.json", "llms": "/llms.txt" },
    });
    document.extensions = Some(ExtensionsBuilder::new().add("x-service-info", service).build());
}

/// The asset that calls are paid in here.
pub(super) fn currency(app: &App) -> String {
    app.service.config.payments.asset.clone()
}

/// The document with the path segment and the model names of this service.
pub(super) fn named(app: &App, document: &OpenApi) -> Result<Value, serde_json::Error> {
    let vendor = &app.service.config.server.vendor;
    let document = serde_json::to_string(document)?;
    if vendor == "vendor" {
        return serde_json::from_str(&document);
    }
    let document = document
        .replace("\"/vendor/", &format!("\"/{vendor}/"))
        .replace("vendor-v4-", &format!("{vendor}-v4-"));
    serde_json::from_str(&document)
}

/// The document of the paid operations alone.
pub(super) fn public(app: &App) -> Response {
    let mut document = openapi::document();
    document
        .paths
        .paths
        .retain(|path, _item| path.starts_with(SEGMENT));
    VERSION.clone_into(&mut document.info.version);
    add_offers(&mut document, &currency(app));
    let shown = named(app, &document).map(only_used);
    match shown {
        Ok(document) => ([(header::CACHE_CONTROL, MAX_AGE)], Json(document)).into_response(),
        Err(error) => super::problem::ApiError(turnpike_app::AppError::internal(&error)).into_response(),
    }
}

/// Leaves the schemas that something refers to.
fn only_used(mut document: Value) -> Value {
    let mut used: Vec<String> = Vec::new();
    let Some(schemas) = document
        .pointer("/components/schemas")
        .and_then(Value::as_object)
        .cloned()
    else {
        return document;
    };
    let mut waiting: Vec<Value> = document.get("paths").cloned().into_iter().collect();
    while let Some(value) = waiting.pop() {
        for name in references(&value) {
            if !used.contains(&name)
                && let Some(schema) = schemas.get(&name)
            {
                waiting.push(schema.clone());
                used.push(name);
            }
        }
    }
    let kept: Map<String, Value> = schemas
        .into_iter()
        .filter(|(name, _)| used.contains(name))
        .collect();
    document["components"] = json!({ "schemas": kept });
    document
}

/// The names of the schemas that a value refers to.
fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, member)| match (name.as_str(), member.as_str()) {
                ("$ref", Some(target)) => target.rsplit('/').next().map(str::to_owned).into_iter().collect(),
                _ => references(member),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}
