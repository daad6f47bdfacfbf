//! How somebody who lost everything begins anew: the operator makes a link, once and for a day.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;
use turnpike_store::Person;

use super::login::Login;
use super::{PeopleDesk, no_such_person};
use crate::error::AppError;
use crate::invitations::token_hash;

/// How long a link can be used.
const RESET_MS: i64 = 86_400_000;
/// Longest token that is looked at.
const MAX_TOKEN: usize = 128;

impl PeopleDesk {
    /// Makes a link with which the person of `login` chooses password and second factor anew; ends the person's
    /// sessions.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn reset(&self, login: &str, origin: &str) -> Result<Value, AppError> {
        let login = Login::parse(login)?;
        let person = self.store.find_login(&login.key).await?;
        let person = person.ok_or_else(no_such_person)?;
        let token = URL_SAFE_NO_PAD.encode(self.environment.random_32());
        let now = self.environment.now();
        let ends_at = now.plus_millis(RESET_MS);
        let audits = self
            .audits(&person.subject, "member.reset", "operator", origin)
            .await?;
        let opened = self
            .store
            .open_reset(&person.subject, &token_hash(&token), ends_at, now, &audits)
            .await?;
        if !opened {
            return Err(no_such_person());
        }
        self.store.clear_attempts(self.slot(&login.key)).await?;
        let url = self
            .pages
            .as_ref()
            .map(|pages| format!("{pages}/reset?token={token}"));
        Ok(json!({ "login": person.login, "subject": person.subject, "url": url, "expiresAt": ends_at }))
    }

    /// The person who begins anew with `token`.
    ///
    /// # Errors
    /// `NOT_FOUND` when the link was used, has expired or never was.
    pub async fn resetting(&self, token: &str) -> Result<Person, AppError> {
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(over());
        }
        let now = self.environment.now();
        let person = self.store.find_reset(&token_hash(token), now).await?;
        person.ok_or_else(over)
    }

    /// Writes how `person` is recognised from now on.
    pub(super) async fn store_reset(
        &self,
        token: &str,
        person: &Person,
        recovery: &[[u8; 32]],
        now: Timestamp,
    ) -> Result<(), AppError> {
        let actor = format!("member:{}", person.subject);
        let audits = self
            .audits(&person.subject, "member.renew", &actor, "page")
            .await?;
        let hash = token_hash(token);
        let done = self
            .store
            .finish_reset(&hash, person, recovery, now, &audits)
            .await?;
        if done { Ok(()) } else { Err(over()) }
    }
}

fn over() -> AppError {
    AppError::new(
        ErrorCode::NotFound,
        "there is no such link, or it was used already",
    )
}
