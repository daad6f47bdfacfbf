//! Passwords: which are taken, and how they are hashed.
//!
//! A hash costs 19 MiB and a noticeable part of a second, so few are made at once and few wait: what strangers can
//! cause is bounded.

use std::sync::Arc;

use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use turnpike_core::errors::ErrorCode;
use zeroize::Zeroizing;

use super::common_passwords::COMMON;
use super::login::Login;
use crate::error::AppError;

/// Fewest and most characters.
const LENGTH: std::ops::RangeInclusive<usize> = 10..=128;
/// Memory in KiB, passes and lanes (OWASP, Password Storage Cheat Sheet).
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);
/// Passwords that are hashed or wait for it.
const IN_QUEUE: usize = 64;
/// What the password of a login that does not exist is compared with: the same cost, and nothing matches.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Refuses what others would guess.
///
/// # Errors
/// `VALIDATION_ERROR`.
pub(super) fn check(password: &str, login: &Login) -> Result<(), AppError> {
    let wrong = |message: &str| Err(AppError::invalid("password", message));
    if !LENGTH.contains(&password.chars().count()) {
        return wrong("must be 10 to 128 characters");
    }
    if password.contains('\0') {
        return wrong("must not have a NUL");
    }
    let plain = password.to_lowercase();
    let name = login.key.split('@').next().unwrap_or_default();
    if plain.contains(&login.key) || (name.chars().count() >= 4 && plain.contains(name)) {
        return wrong("must not contain the login");
    }
    let first = plain.chars().next();
    if COMMON.contains(&&*plain) || plain.chars().all(|c| Some(c) == first) {
        return wrong("is one of the first that somebody would guess: choose another");
    }
    Ok(())
}

/// How many passwords are hashed at once on a machine of so many cores: half of them are left to the calls.
fn at_once(cores: usize) -> usize {
    cores.div_euclid(2).max(1)
}

/// Hashes and compares passwords, a few at once.
pub(super) struct Passwords {
    queue: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

/// A place in which one password is hashed.
pub(super) struct Place {
    _queue: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Passwords {
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            queue: Arc::new(Semaphore::new(IN_QUEUE)),
            places: Arc::new(Semaphore::new(at_once(cores).min(IN_QUEUE))),
        }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// `SERVICE_UNAVAILABLE` when too many wait already.
    pub(super) async fn place(&self) -> Result<Place, AppError> {
        let busy = || {
            let message = "too many people are signing in right now: try again in a moment";
            AppError::new(ErrorCode::ServiceUnavailable, message).retry_after(2)
        };
        let queue = self.queue.clone().try_acquire_owned();
        let queue = queue.map_err(|_full| busy())?;
        let place = self.places.clone().acquire_owned().await;
        Ok(Place {
            _queue: queue,
            _place: place.map_err(|_closed| busy())?,
        })
    }

    /// The hash of a password, as a PHC string.
    pub(super) async fn hash(
        &self,
        place: Place,
        password: Zeroizing<String>,
        random: [u8; 32],
    ) -> Result<String, AppError> {
        let hashed = tokio::task::spawn_blocking(move || {
            let salt = random.first_chunk::<16>().copied().unwrap_or_default();
            let hash = hasher()?
                .hash_password_with_salt(password.as_bytes(), &salt)
                .map_err(|error| AppError::internal(&error))?;
            drop(place);
            Ok(hash.to_string())
        });
        hashed.await.map_err(|error| AppError::internal(&error))?
    }

    /// Whether `password` is the one of `phc`; without one it never is, and takes as long.
    pub(super) async fn matches(
        &self,
        place: Place,
        password: Zeroizing<String>,
        phc: Option<String>,
    ) -> Result<bool, AppError> {
        let compared = tokio::task::spawn_blocking(move || {
            let known = phc.is_some();
            let phc = phc.unwrap_or_else(|| NOBODY.to_owned());
            let same = match hasher()?.verify_password(password.as_bytes(), phc.as_str()) {
                Ok(()) => true,
                Err(argon2::password_hash::Error::PasswordInvalid) => false,
                Err(error) => return Err(AppError::internal(&error)),
            };
            drop(place);
            Ok(same && known)
        });
        compared.await.map_err(|error| AppError::internal(&error))?
    }
}

fn hasher() -> Result<Argon2<'static>, AppError> {
    let (memory, passes, lanes) = COST;
    let params = Params::new(memory, passes, lanes, None).map_err(|error| AppError::internal(&error))?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_long_rare_and_not_the_login() {
        let login = Login::parse("Grace@example.com").unwrap();
        for good in ["a quiet harbour", "Tr0ub4dor&3x", "ппппппппп1", &"xy".repeat(64)] {
            assert!(check(good, &login).is_ok(), "{good}");
        }
        for bad in [
            "short",
            "123456789",
            "Password123",
            "1234567890",
            "qwertyuiop",
            "aaaaaaaaaaaa",
            "my-GRACE-2026",
            "grace@example.com!",
            "has a \0 in it",
        ] {
            assert!(check(bad, &login).is_err(), "{bad}");
        }
        assert!(check(&"x1".repeat(65), &login).is_err());
    }

    #[tokio::test]
    async fn a_hash_matches_its_password_alone_and_nobodys_matches_none() {
        let passwords = Passwords::new();
        let secret = |text: &str| Zeroizing::new(text.to_owned());
        let place = async || passwords.place().await.unwrap();
        let phc = passwords
            .hash(place().await, secret("a quiet harbour"), [7; 32])
            .await
            .unwrap();
        assert!(phc.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{phc}");
        for (text, phc, same) in [
            ("a quiet harbour", Some(phc.clone()), true),
            ("a quiet harbouR", Some(phc), false),
            ("a quiet harbour", None, false),
        ] {
            let found = passwords.matches(place().await, secret(text), phc).await;
            assert_eq!(found.unwrap(), same, "{text}");
        }
    }

    #[tokio::test]
    async fn who_comes_when_too_many_wait_is_sent_away() {
        for (cores, places) in [(1, 1), (2, 1), (3, 1), (4, 2), (16, 8)] {
            assert_eq!(at_once(cores), places);
        }
        let passwords = Arc::new(Passwords::new());
        let (mut places, at_once) = (Vec::new(), passwords.places.available_permits());
        for _ in 0..at_once {
            places.push(passwords.place().await.unwrap());
        }
        let mut waiting = tokio::task::JoinSet::new();
        for _ in at_once..IN_QUEUE {
            let passwords = passwords.clone();
            waiting.spawn(async move { passwords.place().await.is_ok() });
        }
        while passwords.queue.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = passwords.place().await.err().unwrap();
        assert_eq!(refused.code, ErrorCode::ServiceUnavailable);
        places.clear();
        assert!(waiting.join_all().await.into_iter().all(|taken| taken));
        assert!(passwords.place().await.is_ok());
    }
}
