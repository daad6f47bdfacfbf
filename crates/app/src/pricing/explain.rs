//! What a call will cost and why (specification 2.9 and 4.8): the price, the markup and the charge are computed by the
//! functions that calls are charged with.

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::KeyId;
use turnpike_core::pricing::{Explain, ExplainBase, ExplainInput};
use turnpike_store::{ApiKey, Tenant};

use super::{PricingDesk, end_user_markup};
use crate::auth::{Actor, ActorCredential};
use crate::catalogue::{Callable, not_found};
use crate::chat::ChatRequest;
use crate::error::AppError;
use crate::json::{depth, parse};
use crate::providers::{FrozenPrice, Offer};
use crate::tools::ToolEntry;

/// Longest arguments, in bytes; they stand in the address.
const MAX_ARGS: usize = 32 * 1024;
/// Deepest nesting of arguments, as of bodies.
const MAX_DEPTH: usize = 127;

/// What is to be explained.
#[derive(Clone, Debug, Default)]
pub struct ExplainQuery {
    /// The provider's id.
    pub provider: Option<String>,
    /// The tool's name or the model's id.
    pub endpoint: Option<String>,
    /// The call's arguments as JSON; for a model the body of the request.
    pub args: Option<String>,
    /// The key through which it is called, when a member asks.
    pub key_id: Option<String>,
}

impl PricingDesk {
    /// Explains the price of a call of an end user.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `INVALID_JSON`, `ENDPOINT_NOT_FOUND`, `PRICE_UNAVAILABLE`; `NOT_FOUND` for an unknown key;
    /// `CREDENTIAL_KIND_NOT_ALLOWED` for a key that names another.
    pub async fn explain(&self, actor: &Actor, query: &ExplainQuery) -> Result<Explain, AppError> {
        let named = |name: &str, value: &Option<String>| {
            let value = value.clone().filter(|value| !value.is_empty());
            value.ok_or_else(|| AppError::invalid(name, "is required"))
        };
        let provider = named("provider", &query.provider)?;
        let endpoint = named("endpoint", &query.endpoint)?;
        let args = query.args.as_deref().map(read_args).transpose()?;
        // A call without a body has no arguments, which is an object without members.
        let args = args.unwrap_or_else(|| json!({}));
        let key = self.key(actor, query.key_id.as_deref()).await?;
        let key = key.as_ref();
        if !self.shelf.has_endpoint(&provider, &endpoint) {
            return Err(not_found());
        }
        let tenant = &actor.tenant;
        if let Ok((_, tool)) = self.shelf.tool(&provider, &endpoint) {
            return explain_tool(tenant, key, (&provider, &endpoint), &tool, &args);
        }
        // What is configured and is no tool is a model.
        let offer = self.shelf.model_of(&provider, &endpoint)?;
        let what = Explained {
            provider: &provider,
            endpoint: &endpoint,
            method: "POST",
            base: model_base(&offer, &args),
        };
        explain_as(tenant, key, &what)
    }

    /// The key whose prices count: the caller's own, or the one that a member names.
    async fn key(&self, actor: &Actor, named: Option<&str>) -> Result<Option<ApiKey>, AppError> {
        let unknown = || AppError::new(ErrorCode::NotFound, "there is no such key");
        let named: Option<KeyId> = named.map(str::parse).transpose().map_err(|_no_uuid| unknown())?;
        match (&actor.credential, named) {
            (ActorCredential::Key(own), named) if named.is_none_or(|named| named == own.id) => {
                Ok(Some(own.as_ref().clone()))
            }
            (ActorCredential::Member { .. }, Some(named)) => {
                let found = self.store.find_key_by_id(actor.tenant.id, named).await?;
                found.ok_or_else(unknown).map(Some)
            }
            (ActorCredential::Member { .. }, None) => Ok(None),
            (ActorCredential::Key(_) | ActorCredential::EndUser(_) | ActorCredential::Agent(_), _) => {
                Err(AppError::new(
                    ErrorCode::CredentialKindNotAllowed,
                    "only a dashboard session can name a key",
                ))
            }
        }
    }
}

/// Explains the price of an end user's call of a tool of a provider.
///
/// # Errors
/// `PRICE_UNAVAILABLE`; `VALIDATION_ERROR` for a price that is too large.
pub(crate) fn explain_tool(
    tenant: &Tenant,
    key: Option<&ApiKey>,
    (provider, endpoint): (&str, &str),
    tool: &ToolEntry,
    args: &Value,
) -> Result<Explain, AppError> {
    let what = Explained {
        provider,
        endpoint,
        method: tool.method(),
        base: tool_base(tool, args)?,
    };
    explain_as(tenant, key, &what)
}

/// What is called, and what its provider takes for it.
struct Explained<'a> {
    provider: &'a str,
    endpoint: &'a str,
    method: &'a str,
    base: ExplainBase<'a>,
}

fn explain_as(tenant: &Tenant, key: Option<&ApiKey>, what: &Explained<'_>) -> Result<Explain, AppError> {
    let Explained {
        provider, endpoint, ..
    } = *what;
    let slug = format!("{provider}/{endpoint}");
    let input = ExplainInput {
        provider,
        endpoint,
        slug: &slug,
        method: what.method,
        enabled: Callable::new(&tenant.settings, key).allows(provider, &slug),
        credits_per_dollar: tenant.credits_per_dollar,
        markup: end_user_markup(tenant, key, provider, &slug),
        base: what.base,
    };
    Ok(Explain::new(&input)?)
}

/// Reads arguments. What is JSON but no value that can be computed with (a number out of range, a member that stands
/// twice) counts as absent: as no arguments.
fn read_args(text: &str) -> Result<Value, AppError> {
    if text.len() > MAX_ARGS {
        let message = format!("must be at most {MAX_ARGS} bytes");
        return Err(AppError::invalid("args", message));
    }
    if depth(text) > MAX_DEPTH {
        return Err(AppError::invalid("args", "is nested too deeply"));
    }
    let well_formed: Result<IgnoredAny, _> = serde_json::from_str(text);
    if well_formed.is_err() {
        return Err(AppError::new(ErrorCode::InvalidJson, "args is not valid JSON"));
    }
    Ok(parse(text.as_bytes()).unwrap_or_else(|_unusable| json!({})))
}

fn tool_base(tool: &ToolEntry, args: &Value) -> Result<ExplainBase<'static>, AppError> {
    if tool.is_live() {
        return Ok(ExplainBase::Live);
    }
    let base = tool.price()?.explain_price(args).ok_or_else(|| {
        let message = "the price of this call is too large";
        AppError::new(ErrorCode::ValidationError, message)
    })?;
    Ok(if tool.price()?.depends_on_args() {
        ExplainBase::Metered(base)
    } else {
        ExplainBase::Fixed(base)
    })
}

/// What is held for a call of a model with the body `args`; without a usable body there are the rates alone.
fn model_base<'a>(offer: &'a Offer, args: &Value) -> ExplainBase<'a> {
    let most = || {
        let mut body = args.as_object()?.clone();
        body.insert("model".to_owned(), Value::String(offer.model.to_string()));
        let raw = serde_json::to_vec(&body).ok()?;
        let bounded = ChatRequest::parse(&raw).ok()?.bound(offer).ok()?;
        FrozenPrice::base_bound(&offer.priced, &bounded).ok()
    };
    most().map_or(ExplainBase::Rates(&offer.priced.price.rates), ExplainBase::AtMost)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Fault matrix 181
    #[test]
    fn any_json_is_read_and_only_what_is_none_is_refused() {
        for (text, value) in [
            ("null", json!(null)),
            ("[]", json!([])),
            ("\"x\"", json!("x")),
            ("{\"a\":1}", json!({ "a": 1 })),
            // JSON, but nothing to compute with.
            ("1e999", json!({})),
            ("{\"a\":1e999}", json!({})),
            ("{\"a\":1,\"a\":2}", json!({})),
            ("\"\\ud800\"", json!({})),
        ] {
            assert_eq!(read_args(text).unwrap(), value, "{text}");
        }
        for text in ["", "{", "{'a':1}", "NaN", "1 2", "[1,]", "undefined"] {
            assert_eq!(
                read_args(text).unwrap_err().code,
                ErrorCode::InvalidJson,
                "{text}"
            );
        }
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read_args(&nested(MAX_DEPTH)).unwrap().is_array());
        for text in [
            nested(MAX_DEPTH + 1),
            "[".repeat(MAX_ARGS),
            " ".repeat(MAX_ARGS + 1),
        ] {
            assert_eq!(read_args(&text).unwrap_err().code, ErrorCode::ValidationError);
        }
        let brackets = format!("\"{}\"", "[".repeat(1000));
        assert!(read_args(&brackets).unwrap().is_string());
    }
}
