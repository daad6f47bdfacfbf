//! Who calls and what they send in headers, checked before anything else.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName, header};
use turnpike_app::agents::Audience;
use turnpike_app::sessions::Session;
use turnpike_app::tokens::looks_like_end_user_token;
use turnpike_app::{Actor, ActorCredential, AppError, CallContext};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{ExternalUserId, TenantId};
use turnpike_core::ledger::Payer;

use super::problem::ApiError;
use super::{App, cors, oauth, sessions};

/// Longest bearer credential that is looked at.
const MAX_BEARER: usize = 16 * 1024;
/// Longest approval token that is looked at.
const MAX_APPROVAL_TOKEN: usize = 200;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

fn invalid(code: ErrorCode, message: impl Into<String>) -> ApiError {
    ApiError::new(code, message)
}

/// The one value of a header; two of it are refused.
fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    code: ErrorCode,
) -> Result<Option<&'a [u8]>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(invalid(code, format!("{name} must be sent once")));
    }
    Ok(first.map(http::HeaderValue::as_bytes))
}

fn single_text<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    code: ErrorCode,
) -> Result<Option<&'a str>, ApiError> {
    single(headers, name, code)?
        .map(|bytes| {
            std::str::from_utf8(bytes).map_err(|_invalid| invalid(code, format!("{name} is not UTF-8")))
        })
        .transpose()
}

/// Who presents a credential.
pub(super) struct Identified {
    pub(super) actor: Actor,
    /// The dashboard session that it is, if it is one.
    pub(super) session: Option<Session>,
}

impl From<Actor> for Identified {
    fn from(actor: Actor) -> Self {
        Self { actor, session: None }
    }
}

/// The bearer credential.
fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let Some(value) = single_text(headers, &header::AUTHORIZATION, ErrorCode::InvalidCredential)? else {
        return Err(invalid(
            ErrorCode::Unauthenticated,
            "send a credential: Authorization: Bearer …",
        ));
    };
    value
        .split_once(' ')
        .filter(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && token.len() <= MAX_BEARER)
        .map(|(_, token)| token.trim())
        .ok_or_else(|| {
            invalid(
                ErrorCode::InvalidCredential,
                "the credential is not a bearer token",
            )
        })
}

/// Who presents the credential of a request, in which workspace.
pub(super) async fn identify(app: &App, parts: &Parts) -> Result<Identified, ApiError> {
    let headers = &parts.headers;
    let bearer = bearer(headers)?;
    let service = &app.service;
    let now = service.environment.now();
    if service.authenticator.is_key(bearer) {
        let actor = service.authenticator.key(bearer, now).await?;
        refuse_step_up_token(app, headers)?;
        cors::check(parts, &actor)?;
        Ok(actor.into())
    } else if service.authenticator.is_agent(bearer) {
        let resource = service.oauth.resource();
        let audience = if oauth::is_resource(parts.uri.path()) {
            Audience::Resource(&resource)
        } else {
            Audience::Api
        };
        let actor = service.authenticator.agent(bearer, audience, now).await?;
        refuse_step_up_token(app, headers)?;
        Ok(actor.into())
    } else if looks_like_end_user_token(bearer) {
        let session = headers.get_all(&app.names.session_id).iter().collect::<Vec<_>>();
        // Two values, or bytes that are no text, match no session.
        let session = match session.as_slice() {
            [] => None,
            [only] => Some(only.to_str().unwrap_or_default()),
            _ => Some(""),
        };
        let actor = service.authenticator.end_user(bearer, session, now).await?;
        refuse_step_up_token(app, headers)?;
        cors::check(parts, &actor)?;
        Ok(actor.into())
    } else {
        let session = service.sessions.authenticate(bearer).await?;
        let chosen = single_text(headers, &app.names.tenant_id, ErrorCode::ValidationError)?
            .map(str::parse::<TenantId>)
            .transpose()
            .map_err(|_invalid| {
                ApiError(AppError::invalid(app.names.tenant_id.as_str(), "must be a UUID"))
            })?;
        let actor = service.authenticator.member(&session.subject, chosen).await?;
        Ok(Identified {
            actor,
            session: Some(session),
        })
    }
}

/// A step-up token raises a person's session and nothing else.
fn refuse_step_up_token(app: &App, headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.contains_key(&app.names.step_up) {
        return Err(invalid(
            ErrorCode::ValidationError,
            "a step-up token goes with a dashboard session only",
        ));
    }
    Ok(())
}

/// The person whose dashboard session a request presents, whatever workspaces they belong to.
pub(super) async fn identify_person(app: &App, parts: &Parts) -> Result<Session, ApiError> {
    let bearer = bearer(&parts.headers)?;
    let service = &app.service;
    let authenticator = &service.authenticator;
    if authenticator.is_key(bearer) || authenticator.is_agent(bearer) || looks_like_end_user_token(bearer) {
        // Whether it still works is said first, as everywhere.
        let Identified { actor, .. } = identify(app, parts).await?;
        actor.require_member()?;
    }
    Ok(service.sessions.authenticate(bearer).await?)
}

/// Demands a second factor of the last ten minutes, or a step-up token.
pub(super) async fn require_step_up(
    app: &App,
    parts: &Parts,
    actor: &Actor,
    session: &Session,
) -> Result<(), ApiError> {
    let presented = sessions::presented(&parts.headers, &app.names.step_up);
    let sessions = &app.service.sessions;
    Ok(sessions.require_step_up(actor, session, presented).await?)
}

/// The end user whose balance the header names, else the pool.
pub(crate) fn payer(app: &App, headers: &HeaderMap) -> Result<Payer, ApiError> {
    let name = &app.names.external_user_id;
    let Some(text) = single_text(headers, name, ErrorCode::ValidationError)? else {
        return Ok(Payer::Pool);
    };
    ExternalUserId::parse(text)
        .map(Payer::EndUser)
        .map_err(|error| ApiError(AppError::invalid(name.as_str(), error.to_string())))
}

/// Who pays for a call: with a key whom the header names, with a token its own end user, with an agent connection whom it
/// was made for.
pub(crate) fn paying(app: &App, headers: &HeaderMap, actor: &Actor) -> Result<Payer, ApiError> {
    let named = payer(app, headers)?;
    let (own, refused) = match &actor.credential {
        ActorCredential::Key(_) | ActorCredential::Member { .. } => return Ok(named),
        ActorCredential::EndUser(session) => (
            Payer::EndUser(session.id.clone()),
            "the token is another end user's",
        ),
        ActorCredential::Agent(session) => (
            session.payer.clone(),
            "the agent connection does not spend from that end user's balance",
        ),
    };
    match named {
        Payer::EndUser(_) if named != own => Err(invalid(ErrorCode::CredentialKindNotAllowed, refused)),
        Payer::EndUser(_) | Payer::Pool => Ok(own),
    }
}

/// Everything a call takes from its headers.
pub(crate) fn call_context(app: &App, parts: &Parts, actor: Actor) -> Result<CallContext, ApiError> {
    let headers = &parts.headers;
    Ok(CallContext {
        payer: paying(app, headers, &actor)?,
        route: format!("{} {}", parts.method, parts.uri.path()),
        idempotency_key: idempotency_key(headers)?,
        attribution: attribution(app, headers)?,
        loop_id: loop_id(app, headers)?,
        approval_token: approval_token(app, headers)?,
        actor,
    })
}

/// 1 to 255 visible ASCII characters, once.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<Arc<str>>, ApiError> {
    let code = ErrorCode::IdempotencyKeyInvalid;
    let Some(bytes) = single(headers, &IDEMPOTENCY_KEY, code)? else {
        return Ok(None);
    };
    checked_key(bytes).map(Some)
}

/// The key, when it is one.
pub(crate) fn checked_key(bytes: &[u8]) -> Result<Arc<str>, ApiError> {
    let visible = bytes.iter().all(|byte| (0x21..=0x7e).contains(byte));
    match std::str::from_utf8(bytes) {
        Ok(key) if visible && (1..=255).contains(&key.len()) => Ok(key.into()),
        _ => Err(invalid(
            ErrorCode::IdempotencyKeyInvalid,
            "Idempotency-Key must be 1 to 255 visible ASCII characters",
        )),
    }
}

/// The token of a quote, whatever it says.
fn approval_token(app: &App, headers: &HeaderMap) -> Result<Option<Arc<str>>, ApiError> {
    let name = &app.names.approval_token;
    let token = single_text(headers, name, ErrorCode::ValidationError)?;
    if token.is_some_and(|token| token.len() > MAX_APPROVAL_TOKEN) {
        let message = "must be a token that an estimate gave out";
        return Err(ApiError(AppError::invalid(name.as_str(), message)));
    }
    Ok(token.map(Into::into))
}

/// `^[A-Za-z0-9][A-Za-z0-9._:-]{15,127}$`, as session ids (specification 4.4).
fn loop_id(app: &App, headers: &HeaderMap) -> Result<Option<Arc<str>>, ApiError> {
    let name = &app.names.loop_id;
    let Some(text) = single_text(headers, name, ErrorCode::ValidationError)? else {
        return Ok(None);
    };
    let first = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
    if first && rest && (16..=128).contains(&text.len()) {
        Ok(Some(text.into()))
    } else {
        let message = "must be 16 to 128 characters of A-Z a-z 0-9 . _ : - that begin with a letter or digit";
        Err(ApiError(AppError::invalid(name.as_str(), message)))
    }
}

/// A JSON object of at most 20 short strings (decisions, section 5), kept as it was sent.
fn attribution(app: &App, headers: &HeaderMap) -> Result<Option<Arc<str>>, ApiError> {
    let name = &app.names.attribution;
    let code = ErrorCode::AttributionInvalid;
    let Some(text) = single_text(headers, name, code)? else {
        return Ok(None);
    };
    let refuse = |message: &str| Err(invalid(code, format!("{name} {message}")));
    if text.len() > 2048 {
        return refuse("must be at most 2048 bytes");
    }
    let Ok(members) = turnpike_app::json::parse_object(text.as_bytes()) else {
        return refuse("must be a JSON object");
    };
    if members.len() > 20 {
        return refuse("must have at most 20 members");
    }
    for (key, value) in &members {
        if !(1..=40).contains(&key.chars().count()) {
            return refuse("must have keys of 1 to 40 characters");
        }
        if value.as_str().is_none_or(|value| value.chars().count() > 200) {
            return refuse("must have string values of at most 200 characters");
        }
        // A NUL stands in no text column, and nobody tags by control characters.
        if key
            .chars()
            .chain(value.as_str().unwrap_or_default().chars())
            .any(char::is_control)
        {
            return refuse("must not have control characters");
        }
    }
    Ok(Some(text.into()))
}

/// Whether the caller's own costs are shown to it: with a secret key, not to end users.
pub(crate) fn sees_cost(actor: &Actor) -> bool {
    matches!(&actor.credential, ActorCredential::Key(_))
}
