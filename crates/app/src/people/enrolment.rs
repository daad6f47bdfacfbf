//! How somebody with a link becomes a person: login, password, second factor, recovery codes.
//!
//! Nothing is written before a code shows that the second factor works; then everything is, in one transaction.

use std::fmt;

use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;
use turnpike_store::{Credentials, Enrolled as Stored, Person};
use zeroize::Zeroizing;

use super::login::Login;
use super::password;
use super::second_factor::{self, AuthenticatorSecret, Typed};
use super::ticket::{self, Door, Enrolling, Ticket};
use super::{PeopleDesk, RequestOrigin, SignedIn, session_start};
use crate::error::AppError;

/// How long an enrolment may take.
const ENROLMENT_MS: i64 = 30 * 60_000;

/// What is shown to somebody who is to set up the second factor.
#[derive(Clone)]
pub struct Enrolment {
    /// What the next form carries.
    pub ticket: String,
    /// Who it will be.
    pub login: String,
    /// What goes into the authenticator app.
    pub secret: AuthenticatorSecret,
}

/// Somebody who has a second factor now.
#[derive(Clone)]
pub struct Enrolled {
    /// The person, who is signed in by it.
    pub signed_in: SignedIn,
    /// Recovery codes, shown once.
    pub recovery_codes: Vec<String>,
}

impl fmt::Debug for Enrolment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Debug for Enrolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl PeopleDesk {
    /// Takes the login and password of who joins with an invitation's token.
    ///
    /// # Errors
    /// `NOT_FOUND` for an invitation that is not open, `VALIDATION_ERROR`, `ALREADY_EXISTS` for a login that somebody
    /// has, `SERVICE_UNAVAILABLE`.
    pub async fn begin_joining(
        &self,
        token: &str,
        login: &str,
        password: Zeroizing<String>,
    ) -> Result<Enrolment, AppError> {
        self.invitations.open(token).await?;
        let login = Login::parse(login)?;
        password::check(&password, &login)?;
        if self.store.find_login(&login.key).await?.is_some() {
            return Err(login_taken());
        }
        self.begin(Door::Invitation(token.to_owned()), login, password)
            .await
    }

    /// Takes the new password of who has a reset's token.
    ///
    /// # Errors
    /// `NOT_FOUND` for a reset that is over, `VALIDATION_ERROR`, `SERVICE_UNAVAILABLE`.
    pub async fn begin_reset(&self, token: &str, password: Zeroizing<String>) -> Result<Enrolment, AppError> {
        let person = self.resetting(token).await?;
        let login = Login::parse(&person.login)?;
        password::check(&password, &login)?;
        self.begin(Door::Reset(token.to_owned()), login, password).await
    }

    async fn begin(
        &self,
        door: Door,
        login: Login,
        password: Zeroizing<String>,
    ) -> Result<Enrolment, AppError> {
        let place = self.passwords.place().await?;
        let random = self.environment.random_32();
        let enrolling = Enrolling {
            door,
            password: self.passwords.hash(place, password, random).await?,
            secret: second_factor::draw(&self.environment.random_32()).to_vec(),
            login: login.shown,
        };
        let ends_at = self.environment.now().plus_millis(ENROLMENT_MS);
        let random = self.environment.random_32();
        let secret = second_factor::shown(&enrolling.secret, &enrolling.login)?;
        let login = enrolling.login.clone();
        let ticket = self
            .tickets
            .write(Ticket::Enrolment(enrolling), ends_at, &random)?;
        Ok(Enrolment {
            ticket,
            login,
            secret,
        })
    }

    fn enrolling(&self, ticket: &str, now: Timestamp) -> Result<Enrolling, AppError> {
        match self.tickets.read(ticket, now)? {
            Ticket::Enrolment(enrolling) => Ok(enrolling),
            Ticket::SignIn { .. } => Err(AppError::new(ErrorCode::ValidationError, ticket::OVER)),
        }
    }

    /// The same enrolment once more, for who mistyped the code.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` when it took too long.
    pub fn enrolment(&self, ticket: &str) -> Result<Enrolment, AppError> {
        let enrolling = self.enrolling(ticket, self.environment.now())?;
        Ok(Enrolment {
            ticket: ticket.to_owned(),
            secret: second_factor::shown(&enrolling.secret, &enrolling.login)?,
            login: enrolling.login,
        })
    }

    /// Takes the first code, and writes everything.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` with the path `code` when it is not right, without one when this took too long; `NOT_FOUND`
    /// when the link was used meanwhile, `ALREADY_EXISTS` when somebody else took the login.
    pub async fn finish_enrolment(
        &self,
        ticket: &str,
        code: &str,
        from: &RequestOrigin,
    ) -> Result<Enrolled, AppError> {
        let now = self.environment.now();
        let enrolling = self.enrolling(ticket, now)?;
        let step = match Typed::read(code) {
            Typed::Code(code) => second_factor::step_of(&enrolling.secret, &code, now)?,
            Typed::Recovery(_) | Typed::Nothing => None,
        };
        let wrong = || AppError::invalid("code", "is not the one that the app shows now");
        let step = step.ok_or_else(wrong)?;
        match &enrolling.door {
            Door::Invitation(token) => self.join(token, &enrolling, step, now, from).await,
            Door::Reset(token) => self.renew(token, &enrolling, step, now, from).await,
        }
    }

    async fn join(
        &self,
        token: &str,
        enrolling: &Enrolling,
        step: i64,
        now: Timestamp,
        from: &RequestOrigin,
    ) -> Result<Enrolled, AppError> {
        let (invitation, _tenant) = self.invitations.open(token).await?;
        let subject = self.environment.new_id().to_string();
        let person = Person {
            credentials: self.credentials(&subject, enrolling, step)?,
            login: enrolling.login.clone(),
            sessions_after: Timestamp::from_millis(0),
            created_at: now,
            reset_until: None,
            subject,
        };
        let (recovery_codes, hashes) = self.draw_recovery_codes(&person.subject);
        let acceptance = self
            .invitations
            .acceptance(invitation, &person.subject, &from.text);
        let key = person.login.to_lowercase();
        let stored = self
            .store
            .insert_person(&person, &key, &hashes, &acceptance)
            .await?;
        match stored {
            Stored::Joined => Ok(enrolled(&person, now, recovery_codes)),
            Stored::LoginTaken => Err(login_taken()),
            Stored::NotOpen => Err(AppError::new(
                ErrorCode::NotFound,
                "there is no such invitation, or it is not open any more",
            )),
        }
    }

    async fn renew(
        &self,
        token: &str,
        enrolling: &Enrolling,
        step: i64,
        now: Timestamp,
        from: &RequestOrigin,
    ) -> Result<Enrolled, AppError> {
        let mut person = self.resetting(token).await?;
        person.credentials = self.credentials(&person.subject, enrolling, step)?;
        // Only the session that begins now counts.
        person.sessions_after = now.max(person.sessions_after);
        let (recovery_codes, hashes) = self.draw_recovery_codes(&person.subject);
        self.store_reset(token, &person, &hashes, now, from).await?;
        Ok(enrolled(&person, now, recovery_codes))
    }

    fn credentials(&self, subject: &str, enrolling: &Enrolling, step: i64) -> Result<Credentials, AppError> {
        let random = self.environment.random_32();
        let sealed = self.keeper.seal(subject, &enrolling.secret, &random);
        Ok(Credentials {
            password: enrolling.password.clone(),
            totp: sealed.map_err(|error| AppError::internal(&error))?,
            totp_step: step,
        })
    }
}

fn enrolled(person: &Person, now: Timestamp, recovery_codes: Vec<String>) -> Enrolled {
    Enrolled {
        signed_in: SignedIn {
            subject: person.subject.clone(),
            at: session_start(person, now),
        },
        recovery_codes,
    }
}

fn login_taken() -> AppError {
    AppError::new(
        ErrorCode::AlreadyExists,
        "somebody has this login already: choose another",
    )
}
