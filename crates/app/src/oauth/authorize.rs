//! A client asks, a member answers (RFC 6749, section 4.1; RFC 7636; RFC 8707; RFC 9207).
//!
//! The rule: nobody is sent anywhere but to a redirect URI that the client registered.

use turnpike_core::access::AgentSecretKind;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::Payer;
use turnpike_core::money::Micros;
use turnpike_core::oauth::{OAuthErrorCode, Scopes, is_challenge};
use turnpike_store::OAuthCode;

use super::grant::{Grant, Request};
use super::redirect::{destination, is_same, with_query};
use super::{OAuthDesk, Parameters};
use crate::agents::{LIFETIME_SECS, payer, require_right};
use crate::auth::{Actor, ActorCredential};
use crate::error::AppError;

/// How long a member may think.
const REQUEST_MS: i64 = 10 * 60_000;
/// How long a code works.
const CODE_MS: i64 = 60_000;
const MAX_STATE: usize = 2048;

/// Why a request goes no further.
#[derive(Debug)]
pub enum Refusal {
    /// The client is sent back with an error, to this address.
    Back(String),
    /// The person is told here: where to send them is not known for sure.
    Here(AppError),
}

impl From<AppError> for Refusal {
    fn from(error: AppError) -> Self {
        Self::Here(error)
    }
}

/// What a member is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What the client calls itself; nobody has checked it.
    pub client_name: String,
    /// Where the answer goes, in words.
    pub destination: String,
    /// The redirect URI.
    pub redirect_uri: String,
    /// What it asks for.
    pub scopes: Scopes,
}

/// What a member chose.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The end user who pays; empty for the workspace.
    pub external_user_id: String,
    /// The ceiling in dollars; empty for none.
    pub max_usd: String,
    /// The ceiling of one call; empty for none.
    pub max_usd_per_call: String,
    /// How many days it lasts.
    pub days: String,
}

/// The one value of a parameter; two of it are refused, and an empty one counts as none.
fn single<'a>(parameters: &'a Parameters, name: &str) -> Result<Option<&'a str>, String> {
    let mut values = parameters.iter().filter(|(known, _)| known == name);
    let first = values.next().map(|(_, value)| value.as_str());
    if values.next().is_some() {
        return Err(format!("{name} stands twice"));
    }
    Ok(first.filter(|value| !value.is_empty()))
}

fn here(message: &str) -> Refusal {
    Refusal::Here(AppError::new(ErrorCode::ValidationError, message))
}

impl OAuthDesk {
    /// Checks what a client asks for, and seals it for the pages that follow.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn begin(&self, parameters: &Parameters) -> Result<(String, Asked), Refusal> {
        let known = |name| single(parameters, name).map_err(|message| here(&message));
        let client_id = known("client_id")?.ok_or_else(|| here("client_id is missing"))?;
        let client = self
            .client(client_id)
            .await
            .map_err(|error| here(&error.description))?
            .ok_or_else(|| {
                here("this client is not registered here, or not any more: let it connect again")
            })?;
        let asked = known("redirect_uri")?.ok_or_else(|| here("redirect_uri is missing"))?;
        if !client.redirect_uris.iter().any(|known| is_same(known, asked)) {
            return Err(here("redirect_uri is none that the client registered"));
        }
        // From here on the client is told.
        let state = single(parameters, "state").ok().flatten();
        let state = state.filter(|state| state.len() <= MAX_STATE);
        let back = |code, text: &str| Refusal::Back(self.refused(asked, state, code, text));
        let scopes = self.check(parameters).map_err(|(code, text)| back(code, &text))?;
        let challenge = single(parameters, "code_challenge").ok().flatten();
        let request = Request {
            client: client.id,
            client_name: client.name,
            redirect_uri: asked.to_owned(),
            state: state.map(str::to_owned),
            scope: scopes.to_string(),
            challenge: challenge.unwrap_or_default().to_owned(),
            ends_at: self.now().plus_millis(REQUEST_MS).millis(),
        };
        let sealed = self.requests.write(&request, &self.environment.random_32());
        let sealed = sealed.ok_or_else(|| AppError::internal(&"a request could not be sealed"))?;
        Ok((sealed, shown(&request, scopes)))
    }

    /// Everything whose error goes back to the client.
    fn check(&self, parameters: &Parameters) -> Result<Scopes, (OAuthErrorCode, String)> {
        use OAuthErrorCode::{InvalidRequest, InvalidScope, InvalidTarget, UnsupportedResponseType};
        let one = |name| single(parameters, name).map_err(|message| (InvalidRequest, message));
        let refuse = |code, text: &str| Err((code, text.to_owned()));
        if one("state")?.is_some_and(|state| state.len() > MAX_STATE) {
            return refuse(InvalidRequest, "state must be at most 2048 bytes");
        }
        match one("response_type")? {
            Some("code") => {}
            None => return refuse(InvalidRequest, "response_type is missing"),
            Some(_) => return refuse(UnsupportedResponseType, "response_type must be code"),
        }
        if one("code_challenge_method")? != Some("S256") {
            return refuse(InvalidRequest, "code_challenge_method must be S256");
        }
        if !one("code_challenge")?.is_some_and(is_challenge) {
            return refuse(InvalidRequest, "code_challenge must be a SHA-256 in base64url");
        }
        let resources = parameters.iter().filter(|(name, _)| name == "resource");
        if resources
            .into_iter()
            .any(|(_, resource)| !self.is_resource(resource))
        {
            let text = format!("the one resource here is {}", self.resource());
            return Err((InvalidTarget, text));
        }
        let Some(scope) = one("scope")? else {
            return Ok(Scopes::all());
        };
        Scopes::parse(scope).ok_or_else(|| {
            let text = format!("the scopes here are {}", super::scopes().join(" "));
            (InvalidScope, text)
        })
    }

    /// Whether a client means our MCP endpoint.
    pub(super) fn is_resource(&self, asked: &str) -> bool {
        asked.trim_end_matches('/') == self.resource()
    }

    fn refused(&self, uri: &str, state: Option<&str>, code: OAuthErrorCode, text: &str) -> String {
        let mut members = vec![("error", code.as_str()), ("error_description", text)];
        members.extend(state.map(|state| ("state", state)));
        members.push(("iss", &self.issuer));
        with_query(uri, &members)
    }

    fn read(&self, sealed: &str) -> Result<(Request, Scopes), AppError> {
        let over = || {
            AppError::new(
                ErrorCode::ValidationError,
                "this took too long: let the client begin again",
            )
        };
        let request = self.requests.read(sealed, self.now()).ok_or_else(over)?;
        let scopes = Scopes::parse(&request.scope).ok_or_else(over)?;
        Ok((request, scopes))
    }

    /// What a member is asked.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` when the request is over.
    pub fn asked(&self, sealed: &str) -> Result<Asked, AppError> {
        let (request, scopes) = self.read(sealed)?;
        Ok(shown(&request, scopes))
    }

    /// The member agrees; where the client gets its code.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`; `INSUFFICIENT_SCOPE` for who may not give that.
    pub async fn agree(&self, actor: &Actor, sealed: &str, choice: &Choice) -> Result<String, AppError> {
        let (request, scopes) = self.read(sealed)?;
        let ActorCredential::Member { subject, .. } = &actor.credential else {
            return Err(AppError::new(
                ErrorCode::CredentialKindNotAllowed,
                "only a member can agree to this",
            ));
        };
        let named = Some(choice.external_user_id.trim()).filter(|text| !text.is_empty());
        let owner = payer(named)?;
        require_right(actor, &owner).map_err(|mut error| {
            if error.code == ErrorCode::InsufficientScope {
                "only an owner or admin can connect an agent to the workspace's own balance"
                    .clone_into(&mut error.message);
            }
            error
        })?;
        if let Payer::EndUser(id) = &owner {
            let user = self.store.find_end_user(actor.tenant.id, id).await?;
            if user.is_some_and(|user| user.retired) {
                return Err(AppError::new(
                    ErrorCode::EndUserRetired,
                    "the end user was retired",
                ));
            }
        }
        let grant = Grant {
            client: request.client,
            client_name: request.client_name,
            redirect_uri: request.redirect_uri.clone(),
            scope: scopes.to_string(),
            challenge: request.challenge,
            resource: self.resource(),
            tenant: actor.tenant.id,
            subject: subject.to_string(),
            origin: actor.origin.to_string(),
            owner: owner.as_owner().to_owned(),
            max_spend: amount("maxUsd", &choice.max_usd)?,
            max_per_call: amount("maxUsdPerCall", &choice.max_usd_per_call)?,
            lifetime_secs: lifetime(&choice.days, scopes.offline)?,
            agent: self.environment.new_id(),
        };
        let (secret, hash) = self.secret(AgentSecretKind::Code);
        let code = OAuthCode {
            hash,
            expires_at: self.now().plus_millis(CODE_MS),
            used_at: None,
            document: serde_json::to_string(&grant).map_err(|error| AppError::internal(&error))?,
        };
        self.store.insert_code(&code).await?;
        let mut members = vec![("code", secret.reveal())];
        members.extend(request.state.as_deref().map(|state| ("state", state)));
        members.push(("iss", &self.issuer));
        Ok(with_query(&request.redirect_uri, &members))
    }

    /// The member says no; where the client is told.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` when the request is over.
    pub fn decline(&self, sealed: &str) -> Result<String, AppError> {
        let (request, _) = self.read(sealed)?;
        let (code, text) = (OAuthErrorCode::AccessDenied, "the request was declined");
        Ok(self.refused(&request.redirect_uri, request.state.as_deref(), code, text))
    }
}

fn shown(request: &Request, scopes: Scopes) -> Asked {
    Asked {
        client_name: request.client_name.clone(),
        destination: destination(&request.redirect_uri),
        redirect_uri: request.redirect_uri.clone(),
        scopes,
    }
}

fn amount(name: &str, text: &str) -> Result<Option<Micros>, AppError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    Micros::parse_usd(text)
        .map(Some)
        .map_err(|error| AppError::invalid(name, error.to_string()))
}

/// How long the connection lives: as chosen when it can be refreshed, otherwise as long as its access token.
fn lifetime(days: &str, offline: bool) -> Result<i64, AppError> {
    if !offline {
        return Ok(super::token::ACCESS_SECS);
    }
    let secs = days
        .parse::<u16>()
        .ok()
        .map(|days| i64::from(days).saturating_mul(86_400));
    secs.filter(|secs| LIFETIME_SECS.contains(secs))
        .ok_or_else(|| AppError::invalid("days", "must be 1 to 365"))
}
