//! How somebody who lost everything begins anew: the operator makes a link, once and for a day.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;
use turnpike_store::Person;

use super::login::Login;
use super::{PeopleDesk, RequestOrigin, no_such_person};
use crate::error::AppError;
use crate::invitations::token_hash;

/// How long a link can be used.
const RESET_MS: i64 = 86_400_000;
/// Longest token that is looked at.
const MAX_TOKEN: usize = 128;

impl PeopleDesk {
    /// Makes a link with which the person of `login` chooses password and second factor anew; ends the person's
    /// sessions. Until the link is used or has expired, what the person chose before does not sign in.
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
        let (subject, hash) = (&*person.subject, token_hash(&token));
        let notes = self.notes(subject, "member.reset", "operator", origin).await?;
        let opened = self
            .store
            .open_reset(subject, &hash, ends_at, now, notes.first.as_ref())
            .await?;
        if !opened {
            return Err(no_such_person());
        }
        self.note(notes.others).await;
        self.store.clear_attempts(self.factor_slot(subject)).await?;
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

    /// Writes how `person` is recognised from now on, and forgets what failed before.
    pub(super) async fn store_reset(
        &self,
        token: &str,
        person: &Person,
        recovery: &[[u8; 32]],
        now: Timestamp,
        from: &RequestOrigin,
    ) -> Result<(), AppError> {
        let actor = format!("member:{}", person.subject);
        let notes = self
            .notes(&person.subject, "member.renew", &actor, &from.text)
            .await?;
        let hash = token_hash(token);
        let done = self
            .store
            .finish_reset(&hash, person, recovery, now, notes.first.as_ref())
            .await?;
        if !done {
            return Err(over());
        }
        self.note(notes.others).await;
        let slots = self.password_slots(&person.login.to_lowercase(), from.address);
        self.forget_password_attempts(&slots).await
    }
}

fn over() -> AppError {
    AppError::new(
        ErrorCode::NotFound,
        "there is no such link, or it was used already",
    )
}
