//! The bodies of the operations that are paid for by the call: checked, bounded, and as the provider gets them
//! (specification 2.3 to 2.5).
//!
//! The same rules as on credits: what is priced is what is sent, a field that would change the price is refused,
//! unknown fields pass through. Nothing streams here, and the output budget must be named.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::paid_call::{Operation, PaidSubject};
use turnpike_core::money::Micros;
use turnpike_core::pricing::{Charge, EffectiveMarkup};
use turnpike_upstream::ChatApi;

use crate::chat::{Bounded, ChatRequest, MAX_N, boolean, check_priced, integer, output_bound, output_budget};
use crate::error::AppError;
use crate::json::parse_object;
use crate::providers::{FrozenPrice, Offer, ProviderEntry, Shelf};

/// What listing the models costs: 3000 base units, 0.003 USD (specification, section 8).
pub const LIST_MODELS_FEE: Micros = Micros::new(3000);

/// Largest output budget (specification, section 8).
const MAX_TOKENS: u64 = 384_000;

/// What is sold by the call.
#[derive(Clone, Debug)]
pub struct Assortment {
    /// The cheaper model, chat only.
    pub flash: Arc<str>,
    /// The better model, chat and fill-in-the-middle.
    pub pro: Arc<str>,
    /// What is charged on top of the provider's price.
    pub markup: EffectiveMarkup,
}

/// A request that is checked and priced.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) subject: PaidSubject,
    /// The most it can cost.
    pub(crate) max: Charge,
    pub(crate) work: Work,
}

/// What is done for the money.
#[derive(Debug)]
pub(crate) enum Work {
    /// A provider is asked.
    Ask {
        provider: Arc<ProviderEntry>,
        api: ChatApi,
        price: FrozenPrice,
        bounded: Bounded,
    },
    /// The answer is made here.
    Local(Bytes),
}

impl Prepared {
    /// The same, with what was agreed as the most it can cost: prices may have risen since.
    pub(crate) fn at_most(mut self, agreed: Micros) -> Self {
        if self.max.effective > agreed {
            let base = self.max.base.min(agreed);
            let margin = agreed.saturating_sub_zero(base);
            let flat = self.max.flat.min(margin);
            self.max = Charge {
                base,
                markup: margin.saturating_sub_zero(flat),
                flat,
                margin,
                effective: agreed,
            };
            self.subject.base = self.max.base;
        }
        self
    }
}

impl Work {
    /// Longest it may take, in milliseconds.
    pub(crate) fn longest_ms(&self) -> i64 {
        match self {
            Self::Ask { provider, .. } => provider.total_timeout_ms,
            Self::Local(_) => 0,
        }
    }
}

/// SHA-256 of a body's raw bytes, hexadecimal. No body is the documented `{}` where that is a whole one.
pub(crate) fn body_hash(operation: Operation, raw: &[u8]) -> Arc<str> {
    let is_default = operation == Operation::ListModels && raw.is_empty();
    hex::encode(Sha256::digest(if is_default { b"{}" } else { raw })).into()
}

/// Checks and prices a request.
///
/// # Errors
/// 400 codes that name the member, `PRICE_UNAVAILABLE`.
pub(crate) fn prepare(
    shelf: &Shelf,
    sold: &Assortment,
    operation: Operation,
    raw: &[u8],
) -> Result<Prepared, AppError> {
    match operation {
        Operation::Chat => chat(shelf, sold, raw),
        Operation::Fim => fim(shelf, sold, raw),
        Operation::ListModels => list_models(shelf, sold, raw),
    }
}

fn chat(shelf: &Shelf, sold: &Assortment, raw: &[u8]) -> Result<Prepared, AppError> {
    let request = ChatRequest::parse(raw)?;
    common(&request.body)?;
    let offer = offer(shelf, &request.model, &[&sold.flash, &sold.pro])?;
    let bounded = request.bound_any(&offer)?;
    asked(
        sold,
        Operation::Chat,
        ChatApi::ChatCompletions,
        &offer,
        bounded,
        raw,
    )
}

fn fim(shelf: &Shelf, sold: &Assortment, raw: &[u8]) -> Result<Prepared, AppError> {
    let mut body = parse_object(raw)?;
    let model = match body.get("model") {
        Some(Value::String(model)) => model.clone(),
        Some(_) => return Err(AppError::invalid("model", "must be a string")),
        None => return Err(AppError::invalid("model", "is required")),
    };
    match body.get("prompt") {
        Some(Value::String(_)) => {}
        Some(_) => return Err(AppError::invalid("prompt", "must be a string")),
        None => return Err(AppError::invalid("prompt", "is required")),
    }
    if !matches!(body.get("suffix"), None | Some(Value::Null | Value::String(_))) {
        return Err(AppError::invalid("suffix", "must be a string"));
    }
    check_priced(&body)?;
    let budget = common(&body)?;
    let n = integer(&body, "n", 1, MAX_N)?.unwrap_or(1);
    let offer = offer(shelf, &model, &[&sold.pro])?;
    let price = &offer.priced.price;
    let completion = output_bound(Some((budget, "max_tokens")), price.max_output_tokens)?.saturating_mul(n);
    body.insert("model".to_owned(), Value::String(offer.upstream_model.clone()));
    let body = serde_json::to_vec(&body).map_err(|error| AppError::internal(&error))?;
    let prompt = price.input_bound(u64::try_from(body.len()).unwrap_or(u64::MAX), 0)?;
    let bounded = Bounded {
        prompt,
        completion,
        images: 0,
        body: body.into(),
    };
    asked(sold, Operation::Fim, ChatApi::Completions, &offer, bounded, raw)
}

fn list_models(shelf: &Shelf, sold: &Assortment, raw: &[u8]) -> Result<Prepared, AppError> {
    if !raw.is_empty() {
        parse_object(raw)?;
    }
    let data: Vec<Value> = [&sold.flash, &sold.pro]
        .into_iter()
        .map(|id| {
            let offer = offer(shelf, id, &[id]).ok();
            let owner = offer.as_ref().map(|offer| offer.entry.provider.id());
            json!({
                "id": id, "object": "model", "created": 0, "owned_by": owner.unwrap_or("none"),
                "available": offer.is_some(),
            })
        })
        .collect();
    let body = json!({ "object": "list", "data": data }).to_string();
    let fee = LIST_MODELS_FEE;
    Ok(Prepared {
        subject: PaidSubject {
            operation: Operation::ListModels,
            body_hash: body_hash(Operation::ListModels, raw),
            provider: None,
            model: None,
            price: json!({ "flatUsd": fee }).to_string().into(),
            base: Micros::ZERO,
        },
        max: Charge {
            base: Micros::ZERO,
            markup: Micros::ZERO,
            flat: fee,
            margin: fee,
            effective: fee,
        },
        work: Work::Local(body.into()),
    })
}

/// What chat and fill-in-the-middle have in common; the output budget.
fn common(body: &Map<String, Value>) -> Result<u64, AppError> {
    if boolean(body.get("stream"), "stream")?.unwrap_or(false) {
        return Err(AppError::new(
            ErrorCode::StreamUnsupported,
            "this operation does not stream: omit `stream` or send false",
        ));
    }
    match body.get("temperature") {
        None | Some(Value::Null) => {}
        Some(value) if value.as_f64().is_some_and(|value| (0.0..=2.0).contains(&value)) => {}
        Some(_) => {
            return Err(AppError::invalid("temperature", "must be a number from 0 to 2"));
        }
    }
    // The newer name of the budget must not say anything else.
    output_budget(body)?;
    let budget = integer(body, "max_tokens", 1, MAX_TOKENS)?;
    budget.ok_or_else(|| AppError::invalid("max_tokens", "is required: it bounds what is authorised"))
}

/// A model that the operation sells.
fn offer(shelf: &Shelf, model: &str, sold: &[&Arc<str>]) -> Result<Offer, AppError> {
    if sold.iter().any(|id| ***id == *model) {
        return shelf.model(model, |_, _| Ok(()));
    }
    let names: Vec<&str> = sold.iter().map(|id| &***id).collect();
    let message = format!("the model must be {}", names.join(" or "));
    let details = json!([{ "path": "model", "message": message }]);
    Err(AppError::new(ErrorCode::ModelNotSupported, message).with("details", details))
}

fn asked(
    sold: &Assortment,
    operation: Operation,
    api: ChatApi,
    offer: &Offer,
    bounded: Bounded,
    raw: &[u8],
) -> Result<Prepared, AppError> {
    let price = FrozenPrice::new(offer.priced.clone(), sold.markup).with_images(bounded.images);
    let max = price.bound(&bounded)?;
    Ok(Prepared {
        subject: PaidSubject {
            operation,
            body_hash: body_hash(operation, raw),
            provider: Some(offer.entry.provider.id().into()),
            model: Some(offer.model.clone()),
            price: price.to_json().into(),
            base: max.base,
        },
        max,
        work: Work::Ask {
            provider: offer.entry.clone(),
            api,
            price,
            bounded,
        },
    })
}
