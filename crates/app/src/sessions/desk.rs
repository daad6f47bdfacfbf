//! The use cases of sessions: authenticating, step-up tokens, signing out.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use turnpike_core::access::{KeyHash, KeyPepper, StepUpSecret};
use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;
use turnpike_store::{EndedSession, StepUpToken, Store};

use super::claims::{Session, step_up_required};
use super::verifier::SessionVerifier;
use crate::auth::Actor;
use crate::changes::{Author, Change};
use crate::environment::Environment;
use crate::error::AppError;
use crate::fields::Fields;

/// What the hash of a session is for.
const ENDED: &str = "ended session";
/// How long rows outlive what they are about. Longer than a step-up token works: it falls with its session.
const KEPT_MS: i64 = 3_600_000;
/// Longest one-time code that is looked at.
const MAX_CODE_CHARS: usize = 64;

/// The people who sign in at this service; another provider keeps its own.
#[async_trait]
pub trait LocalPeople: Send + Sync {
    /// Takes a one-time `code` from `subject`, once.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` for a code that is wrong or was used, `RATE_LIMITED`.
    async fn take_code(&self, subject: &str, code: &str, now: Timestamp) -> Result<(), AppError>;
    /// Whether a session of `subject` that was signed at `issued_at`, in seconds, still counts.
    ///
    /// # Errors
    /// When the store does not answer.
    async fn is_current(&self, subject: &str, issued_at: i64) -> Result<bool, AppError>;
    /// Ends every session of `subject`.
    ///
    /// # Errors
    /// When the store does not answer.
    async fn end_sessions(&self, subject: &str) -> Result<(), AppError>;
}

/// Authenticates people and raises their sessions.
pub struct SessionDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    pepper: KeyPepper,
    brand: Arc<str>,
    verifier: SessionVerifier,
    people: Option<Arc<dyn LocalPeople>>,
}

impl SessionDesk {
    /// A desk for sessions of `verifier`; tokens begin with `brand` and are hashed under `pepper`.
    pub fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        pepper: KeyPepper,
        brand: Arc<str>,
        verifier: SessionVerifier,
    ) -> Self {
        Self {
            store,
            environment,
            pepper,
            brand,
            verifier,
            people: None,
        }
    }

    /// The same for `people` of this service.
    #[must_use]
    pub fn of_people(self, people: Arc<dyn LocalPeople>) -> Self {
        Self {
            people: Some(people),
            ..self
        }
    }

    /// Who verifies the sessions.
    pub const fn verifier(&self) -> &SessionVerifier {
        &self.verifier
    }

    /// The session in a presented token, which its owner has not ended.
    ///
    /// # Errors
    /// As [`SessionVerifier::verify`]; `CREDENTIAL_REVOKED`.
    pub async fn authenticate(&self, bearer: &str) -> Result<Session, AppError> {
        let session = self.verifier.verify(bearer, self.environment.now()).await?;
        let current = match &self.people {
            Some(people) => people.is_current(&session.subject, session.issued_at).await?,
            None => true,
        };
        if !current || self.store.is_session_ended(&self.hash(&session)).await? {
            return Err(AppError::new(
                ErrorCode::CredentialRevoked,
                "the session was ended by signing out",
            ));
        }
        Ok(session)
    }

    fn hash(&self, session: &Session) -> KeyHash {
        self.pepper.hash_for(ENDED, &session.digest)
    }

    /// Gives a step-up token to who shows a fresh second factor, in the session or by a `code` in the body `raw`.
    ///
    /// # Errors
    /// `STEP_UP_REQUIRED`, and what is wrong with the body.
    pub async fn step_up(&self, actor: &Actor, session: &Session, raw: &[u8]) -> Result<Value, AppError> {
        let mut fields = Fields::parse(raw, &["code"])?;
        let code = fields.words("code", 1..=MAX_CODE_CHARS)?;
        let now = self.environment.now();
        let longest = now.plus_millis(self.verifier.factors().max_age_secs.saturating_mul(1000));
        let expires_at = match (&code, &self.people) {
            (None, _) => session
                .fresh_until(now)
                .map(|until| until.min(longest))
                .filter(|until| *until > now)
                .ok_or_else(step_up_required)?,
            (Some(_), None) => {
                let message = "is not taken here: show the second factor at the identity provider";
                return Err(AppError::invalid("code", message));
            }
            (Some(code), Some(people)) => {
                people.take_code(&session.subject, code, now).await?;
                longest
            }
        };
        let secret = StepUpSecret::generate(&self.brand, &self.environment.random_32());
        let token = StepUpToken {
            tenant: actor.tenant.id,
            hash: secret.hash(&self.pepper),
            issuer: session.issuer.clone(),
            subject: session.subject.clone(),
            session: self.hash(session),
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        let audit = Change::new("step_up.issue", &actor.label())
            .after(&json!({ "expiresAt": expires_at }))
            .row(&*self.environment, &Author::of(actor));
        self.store.insert_step_up(&token, &audit).await?;
        Ok(json!({
            "success": true, "stepUpToken": secret.reveal(), "tokenType": "StepUp", "expiresAt": expires_at,
        }))
    }

    /// Demands a fresh second factor of `session`, or in its place the step-up token `presented` of the same person
    /// in the same workspace.
    ///
    /// # Errors
    /// `STEP_UP_REQUIRED`, whatever is wrong with the token.
    pub async fn require_step_up(
        &self,
        actor: &Actor,
        session: &Session,
        presented: Option<&str>,
    ) -> Result<(), AppError> {
        let now = self.environment.now();
        if session.fresh_until(now).is_some() {
            return Ok(());
        }
        let secret = presented
            .and_then(|text| StepUpSecret::parse(&self.brand, text).ok())
            .ok_or_else(step_up_required)?;
        let hash = secret.hash(&self.pepper);
        let token = self.store.find_step_up(actor.tenant.id, &hash).await?;
        let works = token.is_some_and(|token| {
            token.issuer == session.issuer
                && token.subject == session.subject
                && token.revoked_at.is_none()
                && now < token.expires_at
        });
        if works { Ok(()) } else { Err(step_up_required()) }
    }

    /// Ends `session` and revokes every step-up token of its person; one of this service's people is signed out
    /// everywhere.
    ///
    /// # Errors
    /// What is wrong with the body `raw`, which has no members.
    pub async fn sign_out(&self, session: &Session, raw: &[u8]) -> Result<Value, AppError> {
        Fields::parse(raw, &[])?;
        let ended = EndedSession {
            hash: self.hash(session),
            issuer: session.issuer.clone(),
            subject: session.subject.clone(),
            ended_at: self.environment.now(),
            expires_at: session.expires_at,
        };
        let revoked = self.store.end_session(&ended).await?;
        if let Some(people) = &self.people {
            people.end_sessions(&session.subject).await?;
        }
        Ok(json!({ "success": true, "revokedStepUpTokens": revoked }))
    }

    /// Removes what nobody can use any more.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn prune(&self) -> Result<u64, AppError> {
        let before = self.environment.now().plus_millis(-KEPT_MS);
        Ok(self.store.prune_sessions(before).await?)
    }
}
