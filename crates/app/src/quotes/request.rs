//! What an estimate is asked with.

use serde_json::{Map, Value};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::ExternalUserId;
use turnpike_core::ledger::Payer;
use turnpike_core::money::{CreditsPerDollar, Micros};

use crate::auth::ActorCredential;
use crate::error::AppError;
use crate::fields::Fields;
use crate::tools::ToolCaller;

const MEMBERS: [&str; 5] = [
    "slug",
    "args",
    "expiresInSeconds",
    "maxChargeCredits",
    "externalUserId",
];
/// Longest slug.
const MAX_SLUG: usize = 256;
const DEFAULT_SECS: i64 = 120;

/// The body of an estimate.
#[derive(Debug)]
pub(super) struct EstimateRequest {
    pub(super) provider: String,
    pub(super) endpoint: String,
    pub(super) args: Value,
    pub(super) lifetime_ms: i64,
    pub(super) max_charge: Option<Micros>,
    external_user_id: Option<ExternalUserId>,
}

/// The two parts of a tool's name.
pub(crate) fn slug_parts(slug: &str) -> Result<(String, String), AppError> {
    match slug.split_once('/') {
        Some((provider, endpoint)) if !provider.is_empty() && !endpoint.is_empty() => {
            Ok((provider.to_owned(), endpoint.to_owned()))
        }
        _ => Err(AppError::invalid("slug", "must be provider/endpoint")),
    }
}

/// The end user that a body names.
pub(crate) fn named_user(fields: &mut Fields) -> Result<Option<ExternalUserId>, AppError> {
    let name = "externalUserId";
    let text = fields.words(name, 0..=200)?;
    text.map(|text| ExternalUserId::parse(&text))
        .transpose()
        .map_err(|error| AppError::invalid(name, error.to_string()))
}

/// Whose balance it is about, where the body may name an end user as the header does.
///
/// # Errors
/// `CREDENTIAL_KIND_NOT_ALLOWED` when a token names another, `VALIDATION_ERROR` when header and body disagree.
pub(crate) fn payer(caller: &ToolCaller, named: Option<&ExternalUserId>) -> Result<Payer, AppError> {
    let Some(named) = named else {
        return Ok(caller.payer.clone());
    };
    match caller.payer.external_user_id() {
        Some(own) if own == named => Ok(caller.payer.clone()),
        Some(_) if matches!(caller.actor.credential, ActorCredential::Key(_)) => Err(AppError::invalid(
            "externalUserId",
            "must agree with the header that names the end user",
        )),
        None if matches!(caller.actor.credential, ActorCredential::Key(_)) => {
            Ok(Payer::EndUser(named.clone()))
        }
        Some(_) | None => Err(AppError::new(
            ErrorCode::CredentialKindNotAllowed,
            "the credential is not that end user's",
        )),
    }
}

impl EstimateRequest {
    pub(super) fn parse(raw: &[u8], rate: CreditsPerDollar) -> Result<Self, AppError> {
        let mut fields = Fields::parse(raw, &MEMBERS)?;
        let slug = fields.required("slug", |fields, name| fields.words(name, 1..=MAX_SLUG))?;
        let (provider, endpoint) = slug_parts(&slug)?;
        let args: Map<String, Value> = fields.object("args")?.unwrap_or_default();
        let seconds = fields
            .integer("expiresInSeconds", 30..=600)?
            .unwrap_or(DEFAULT_SECS);
        Ok(Self {
            provider,
            endpoint,
            args: Value::Object(args),
            lifetime_ms: seconds.saturating_mul(1000),
            max_charge: fields.amount("maxChargeCredits", |text| rate.parse_credits(text))?,
            external_user_id: named_user(&mut fields)?,
        })
    }

    pub(super) fn payer(&self, caller: &ToolCaller) -> Result<Payer, AppError> {
        payer(caller, self.external_user_id.as_ref())
    }
}
