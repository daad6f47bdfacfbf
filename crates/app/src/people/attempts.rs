//! How often somebody may try. A try is counted before anything is compared, in one of a fixed number of rows, so that
//! what strangers type does not make more of them.
//!
//! Passwords are counted by login and network, and with far more patience by login alone: who knows a login keeps
//! nobody waiting who comes from elsewhere. The second factor is counted by person, where only somebody comes who
//! knows the password or is signed in.

use std::net::IpAddr;

use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;
use turnpike_store::{Attempt, BackOff};

use super::PeopleDesk;
use crate::error::AppError;
use crate::limits::network_of;

/// How long after a failure the next try is taken, in milliseconds: at once after four, then ever later.
const BACK_OFF_MS: [i64; 9] = [0, 0, 0, 0, 30_000, 60_000, 120_000, 300_000, 900_000];
/// The same of a login from all networks together: at once after 99 failures, then every thirty seconds.
const CEILING_MS: [i64; 100] = {
    let mut waits = [0; 100];
    waits[99] = 30_000;
    waits
};
/// Failures from longer ago do not count.
const FORGET_MS: i64 = 86_400_000;
/// Failures are counted in so many rows.
const SLOTS: i64 = 1 << 20;

/// Where the failures of a password are counted.
pub(super) struct PasswordSlots {
    here: i64,
    everywhere: i64,
}

impl PeopleDesk {
    /// Takes a try of a password, which counts as a failure until it is forgotten.
    ///
    /// # Errors
    /// `RATE_LIMITED`.
    pub(super) async fn take_password_attempt(
        &self,
        login_key: &str,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<PasswordSlots, AppError> {
        let slots = self.password_slots(login_key, from);
        self.take_attempt(slots.here, now, &BACK_OFF_MS).await?;
        if let Err(refused) = self.take_attempt(slots.everywhere, now, &CEILING_MS).await {
            self.store.return_attempt(slots.here, now).await?;
            return Err(refused);
        }
        Ok(slots)
    }

    /// Takes a try of the second factor, which counts as a failure until its slot is cleared.
    ///
    /// # Errors
    /// `RATE_LIMITED`.
    pub(super) async fn take_factor_attempt(&self, subject: &str, now: Timestamp) -> Result<i64, AppError> {
        let slot = self.factor_slot(subject);
        self.take_attempt(slot, now, &BACK_OFF_MS).await?;
        Ok(slot)
    }

    /// Forgets the failures of a password that was right.
    pub(super) async fn forget_password_attempts(&self, slots: &PasswordSlots) -> Result<(), AppError> {
        self.store.clear_attempts(slots.here).await?;
        Ok(self.store.clear_attempts(slots.everywhere).await?)
    }

    /// Where the failures of `login_key` from the network of `from` are counted.
    pub(super) fn password_slots(&self, login_key: &str, from: IpAddr) -> PasswordSlots {
        PasswordSlots {
            here: self.slot(&format!("sign-in slot {login_key} from {}", network_of(from))),
            everywhere: self.slot(&format!("sign-in slot {login_key}")),
        }
    }

    /// Where the failures of the second factor of `subject` are counted.
    pub(super) fn factor_slot(&self, subject: &str) -> i64 {
        self.slot(&format!("second factor slot {subject}"))
    }

    async fn take_attempt(&self, slot: i64, now: Timestamp, back_off: &BackOff) -> Result<(), AppError> {
        let forget = now.plus_millis(-FORGET_MS);
        match self.store.take_attempt(slot, now, forget, back_off).await? {
            Attempt::Allowed => Ok(()),
            Attempt::NotBefore(at) => {
                let secs = at.since(now).max(0).div_euclid(1000).saturating_add(1);
                let message = format!("too many tries that were not right: wait {secs} seconds");
                Err(AppError::new(ErrorCode::RateLimited, message).retry_after(secs.unsigned_abs()))
            }
        }
    }

    /// Which row counts what is called `name`. Nobody outside can tell which names share one.
    fn slot(&self, name: &str) -> i64 {
        let digest = self.pepper.derive(name);
        let bytes = digest.first_chunk::<8>().copied().unwrap_or_default();
        i64::from_be_bytes(bytes).rem_euclid(SLOTS)
    }
}
