//! What a form carries to the next one: sealed, so that only this service can have written it, and for a short time.
//!
//! Nothing of an unfinished sign-in or enrolment is kept in the store.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use turnpike_core::access::KeyPepper;
use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;

use crate::error::AppError;
use crate::sealing::{SealError, Sealer, nonce};

/// Longest ticket that is looked at.
const MAX_TICKET: usize = 8 * 1024;
const THING: &[u8] = b"form";

/// What is carried.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Ticket {
    /// Somebody chose a login and a password, and is to confirm the second factor.
    Enrolment(Enrolling),
    /// Somebody knew the password, and is to show the second factor.
    SignIn {
        subject: String,
        /// What ended the person's sessions then; when something has ended them since, this ended, too.
        sessions_after: i64,
    },
}

/// What is known of an enrolment.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Enrolling {
    /// What lets the person in.
    pub(super) door: Door,
    pub(super) login: String,
    pub(super) password: String,
    pub(super) secret: Vec<u8>,
}

/// What lets a person choose a password.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Door {
    /// An invitation's token.
    Invitation(String),
    /// A reset's token.
    Reset(String),
}

#[derive(Serialize, Deserialize)]
struct Dated {
    ends_at: i64,
    ticket: Ticket,
}

/// Writes and reads tickets.
pub(super) struct Tickets {
    sealer: Sealer,
}

impl Tickets {
    /// Under a key made of `pepper`.
    pub(super) fn new(pepper: &KeyPepper) -> Result<Self, SealError> {
        let sealer = Sealer::new(&pepper.derive("identity forms"), b"turnpike identity form")?;
        Ok(Self { sealer })
    }

    pub(super) fn write(
        &self,
        ticket: Ticket,
        ends_at: Timestamp,
        random: &[u8; 32],
    ) -> Result<String, AppError> {
        let dated = Dated {
            ends_at: ends_at.millis(),
            ticket,
        };
        let plain =
            zeroize::Zeroizing::new(serde_json::to_vec(&dated).map_err(|error| AppError::internal(&error))?);
        let sealed = self.sealer.seal(THING, &plain, &nonce(random));
        let sealed = sealed.map_err(|error| AppError::internal(&error))?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The ticket in `text`, while it lasts.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`.
    pub(super) fn read(&self, text: &str, now: Timestamp) -> Result<Ticket, AppError> {
        let over = || AppError::new(ErrorCode::ValidationError, OVER);
        if text.len() > MAX_TICKET {
            return Err(over());
        }
        let sealed = URL_SAFE_NO_PAD.decode(text).map_err(|_malformed| over())?;
        let plain = self.sealer.open(THING, &sealed).map_err(|_not_ours| over())?;
        let dated: Dated = serde_json::from_slice(&plain).map_err(|_other_version| over())?;
        if dated.ends_at <= now.millis() {
            return Err(over());
        }
        Ok(dated.ticket)
    }
}

/// What somebody is told whose form is too old.
pub(super) const OVER: &str = "this took too long: begin again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_read_until_it_ends_and_by_its_service_alone() {
        let tickets = Tickets::new(&KeyPepper::new(b"one")).unwrap();
        let (now, end) = (Timestamp::from_millis(1_000), Timestamp::from_millis(2_000));
        let ticket = Ticket::SignIn {
            subject: "ada".to_owned(),
            sessions_after: 5,
        };
        let text = tickets.write(ticket, end, &[1; 32]).unwrap();
        assert!(matches!(
            tickets.read(&text, now),
            Ok(Ticket::SignIn {
                sessions_after: 5,
                ..
            })
        ));
        assert!(tickets.read(&text, end).is_err());
        let other = Tickets::new(&KeyPepper::new(b"two")).unwrap();
        assert!(other.read(&text, now).is_err());
        for bad in ["", "x", &text[1..], &"A".repeat(100_000)] {
            assert!(tickets.read(bad, now).is_err());
        }
    }
}
