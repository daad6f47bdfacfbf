//! The built-in identity: people who sign in with a password and a second factor of this service.
//!
//! Whoever tries has the same few tries and the same waits whether the login exists or not, and is told the same. A
//! try is taken before anything is compared, so that many at once are no more than one after the other.

mod attempts;
mod common_passwords;
mod enrolment;
mod first_start;
mod local;
mod login;
mod notes;
mod password;
mod resets;
mod second_factor;
#[cfg(test)]
mod tests;
mod ticket;

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::json;
use turnpike_core::access::KeyPepper;
use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;
use turnpike_store::{Member, Person, Store, Tenant};
use zeroize::Zeroizing;

pub use self::enrolment::{Enrolled, Enrolment};
use self::login::Login;
use self::password::Passwords;
pub use self::second_factor::AuthenticatorSecret;
use self::second_factor::{Keeper, RECOVERY_CODES, Typed, recovery_code, step_of};
use self::ticket::{Ticket, Tickets};
use crate::environment::Environment;
use crate::error::AppError;
use crate::invitations::InvitationDesk;

/// How long somebody who knew the password may take for the second factor.
const SIGN_IN_MS: i64 = 5 * 60_000;
/// From where a request of a page comes.
#[derive(Clone, Debug)]
pub struct RequestOrigin {
    /// Who is connected.
    pub address: IpAddr,
    /// As the audit log has it.
    pub text: Arc<str>,
}

/// A person who has shown both factors.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// Who.
    pub subject: String,
    /// When the session begins.
    pub at: Timestamp,
}

/// What is shown to a person who is signed in.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What the person signs in with.
    pub login: String,
    /// Memberships with their workspaces, by name.
    pub workspaces: Vec<(Member, Tenant)>,
    /// Recovery codes that were not used.
    pub recovery_codes: i64,
}

/// The use cases of the built-in identity.
pub struct PeopleDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    pepper: KeyPepper,
    keeper: Keeper,
    tickets: Tickets,
    passwords: Passwords,
    /// How people are let in.
    pub invitations: InvitationDesk,
    /// The address of the pages, where there are any.
    pages: Option<String>,
}

impl PeopleDesk {
    /// A desk over `store`, with secrets sealed under keys made of `pepper`. `public_url` is where its pages are; in
    /// the mode of another identity provider there are none.
    ///
    /// # Errors
    /// When a key cannot be made, which does not happen.
    pub fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        pepper: KeyPepper,
        public_url: Option<&str>,
    ) -> Result<Self, AppError> {
        let failed = |error| AppError::internal(&error);
        let pages = public_url.map(|url| format!("{}/identity", url.trim_end_matches('/')));
        let join = pages.as_ref().map(|pages| format!("{pages}/join"));
        Ok(Self {
            keeper: Keeper::new(&pepper).map_err(failed)?,
            tickets: Tickets::new(&pepper).map_err(failed)?,
            passwords: Passwords::new(),
            invitations: InvitationDesk::new(store.clone(), environment.clone(), join),
            store,
            environment,
            pepper,
            pages,
        })
    }

    /// Takes a login and a password from `from`; the answer is what the second step needs. While somebody has a link to
    /// begin anew, what was chosen before is refused like a wrong password.
    ///
    /// # Errors
    /// `INVALID_CREDENTIAL`, `RATE_LIMITED`, `SERVICE_UNAVAILABLE` when too many sign in at once.
    pub async fn begin_sign_in(
        &self,
        login: &str,
        password: Zeroizing<String>,
        from: IpAddr,
    ) -> Result<String, AppError> {
        let refused = || {
            let message = "the login or the password is not right";
            AppError::new(ErrorCode::InvalidCredential, message)
        };
        let login = Login::parse(login).map_err(|_no_login| refused())?;
        let place = self.passwords.place().await?;
        let now = self.environment.now();
        let slots = self.take_password_attempt(&login.key, from, now).await?;
        let person = self.store.find_login(&login.key).await?;
        let phc = person.as_ref().map(|person| person.credentials.password.clone());
        // No password that was taken is longer.
        let phc = phc.filter(|_hash| password.len() <= 1024);
        let password = if password.len() <= 1024 {
            password
        } else {
            Zeroizing::default()
        };
        let same = self.passwords.matches(place, password, phc).await?;
        let person = person.filter(|person| same && !person.is_resetting(now));
        let person = person.ok_or_else(refused)?;
        self.forget_password_attempts(&slots).await?;
        let ticket = Ticket::SignIn {
            subject: person.subject,
            sessions_after: person.sessions_after.millis(),
        };
        let random = self.environment.random_32();
        self.tickets.write(ticket, now.plus_millis(SIGN_IN_MS), &random)
    }

    /// Takes the second factor of who knew the password.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` for a code that is not right and for a form that is too old, `RATE_LIMITED`.
    pub async fn finish_sign_in(&self, ticket: &str, code: &str) -> Result<SignedIn, AppError> {
        let now = self.environment.now();
        let over = || AppError::new(ErrorCode::ValidationError, ticket::OVER);
        let Ticket::SignIn {
            subject,
            sessions_after,
        } = self.tickets.read(ticket, now)?
        else {
            return Err(over());
        };
        let person = self.store.find_person(&subject).await?;
        let person = person.filter(|person| person.sessions_after.millis() == sessions_after);
        let person = person.ok_or_else(over)?;
        self.check_factor(&person, code, now).await?;
        Ok(SignedIn {
            at: session_start(&person, now),
            subject,
        })
    }

    /// Checks a code of the second factor, or a recovery code, which is taken by it.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` for a code that is not right, `RATE_LIMITED` after several of them, `NOT_FOUND` for a subject
    /// who has no second factor here.
    pub async fn confirm(&self, subject: &str, code: &str, now: Timestamp) -> Result<(), AppError> {
        let person = self.store.find_person(subject).await?;
        let person = person.ok_or_else(no_such_person)?;
        self.check_factor(&person, code, now).await
    }

    /// Shows the second factor again, which every workspace of the person notes; the answer is when the fresh session
    /// begins.
    ///
    /// # Errors
    /// As [`Self::confirm`].
    pub async fn step_up(&self, subject: &str, code: &str, origin: &str) -> Result<SignedIn, AppError> {
        let now = self.environment.now();
        let person = self.store.find_person(subject).await?;
        let person = person.ok_or_else(no_such_person)?;
        self.check_factor(&person, code, now).await?;
        let at = session_start(&person, now);
        let actor = format!("member:{subject}");
        let mut notes = self.notes(subject, "step_up.session", &actor, origin).await?;
        for row in notes.first.iter_mut().chain(&mut notes.others) {
            row.after = Some(json!({ "sessionFrom": at }).to_string());
        }
        if let Some(first) = &notes.first {
            self.store.append_audit(first).await?;
        }
        self.note(notes.others).await;
        Ok(SignedIn {
            at,
            subject: person.subject,
        })
    }

    /// What is shown to `subject`; `None` = nobody of this name signs in here.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn profile(&self, subject: &str) -> Result<Option<Profile>, AppError> {
        let Some(person) = self.store.find_person(subject).await? else {
            return Ok(None);
        };
        Ok(Some(Profile {
            login: person.login,
            workspaces: self.store.list_memberships(subject).await?,
            recovery_codes: self.store.count_recovery_codes(subject).await?,
        }))
    }

    /// Makes new recovery codes in the place of the old ones, for who shows the second factor.
    ///
    /// # Errors
    /// As [`Self::confirm`].
    pub async fn renew_recovery_codes(
        &self,
        subject: &str,
        code: &str,
        origin: &str,
    ) -> Result<Vec<String>, AppError> {
        self.confirm(subject, code, self.environment.now()).await?;
        let (shown, hashes) = self.draw_recovery_codes(subject);
        let actor = format!("member:{subject}");
        let notes = self
            .notes(subject, "member.recovery_codes", &actor, origin)
            .await?;
        self.store
            .replace_recovery_codes(subject, &hashes, notes.first.as_ref())
            .await?;
        self.note(notes.others).await;
        Ok(shown)
    }

    /// Takes a try of the second factor, compares, and forgets failures when it is right.
    async fn check_factor(&self, person: &Person, code: &str, now: Timestamp) -> Result<(), AppError> {
        let slot = self.take_factor_attempt(&person.subject, now).await?;
        let right = match Typed::read(code) {
            Typed::Code(code) => self.take_code(person, &code, now).await?,
            Typed::Recovery(code) => {
                let hash = self.keeper.recovery_hash(&person.subject, &code);
                self.store.take_recovery_code(&person.subject, &hash, now).await?
            }
            Typed::Nothing => false,
        };
        if right {
            return Ok(self.store.clear_attempts(slot).await?);
        }
        Err(AppError::invalid(
            "code",
            "is not right, or was used before: wait for the next one",
        ))
    }

    async fn take_code(&self, person: &Person, code: &str, now: Timestamp) -> Result<bool, AppError> {
        let secret = self.keeper.open(&person.subject, &person.credentials.totp);
        let secret = secret.map_err(|error| AppError::internal(&error))?;
        let Some(step) = step_of(&secret, code, now)? else {
            return Ok(false);
        };
        Ok(self.store.take_totp_step(&person.subject, step).await?)
    }

    /// Fresh recovery codes of `subject`: as they are shown, and as they are kept.
    fn draw_recovery_codes(&self, subject: &str) -> (Vec<String>, Vec<[u8; 32]>) {
        (0..RECOVERY_CODES)
            .map(|_| {
                let (plain, shown) = recovery_code(&self.environment.random_32());
                (shown, self.keeper.recovery_hash(subject, &plain))
            })
            .unzip()
    }
}

fn no_such_person() -> AppError {
    AppError::new(ErrorCode::NotFound, "nobody of this name signs in here")
}

/// The first second in which a session of `person` may begin.
fn first_second(person: &Person) -> i64 {
    person.sessions_after.millis().div_euclid(1000).saturating_add(1)
}

/// When a session that is made at `now` begins: sessions are dated by seconds, and those of the second in which all
/// were ended do not count.
fn session_start(person: &Person, now: Timestamp) -> Timestamp {
    let first = Timestamp::from_millis(first_second(person).saturating_mul(1000));
    now.max(first)
}
