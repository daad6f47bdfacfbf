//! Rate limits per credential: token buckets, one set per class of request.

use std::hash::Hash;
use std::num::NonZeroU32;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use turnpike_core::errors::ErrorCode;

use crate::error::AppError;

/// What a request counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitClass {
    /// Chat and execute.
    Call,
    /// Reads.
    Read,
    /// Changes.
    Mutation,
    /// Top-ups that are begun.
    Topup,
}

/// Limits by credential.
pub struct RateLimits<K: Hash + Eq + Clone> {
    classes: [Option<(u32, DefaultKeyedRateLimiter<K>)>; 4],
    clock: DefaultClock,
}

impl<K: Hash + Eq + Clone> RateLimits<K> {
    /// Limits of so many calls, reads, changes and top-ups a minute; 0 = unlimited.
    pub fn new(calls: u32, reads: u32, mutations: u32, topups: u32) -> Self {
        let class = |limit| {
            NonZeroU32::new(limit).map(|limit| (limit.get(), RateLimiter::keyed(Quota::per_minute(limit))))
        };
        Self {
            classes: [class(calls), class(reads), class(mutations), class(topups)],
            clock: DefaultClock::default(),
        }
    }

    /// Takes one request of `class` from the bucket of `key`.
    ///
    /// # Errors
    /// `RATE_LIMITED`, with when to try again.
    pub fn check(&self, class: LimitClass, key: &K) -> Result<(), AppError> {
        let [calls, reads, mutations, topups] = &self.classes;
        let limiter = match class {
            LimitClass::Call => calls,
            LimitClass::Read => reads,
            LimitClass::Mutation => mutations,
            LimitClass::Topup => topups,
        };
        let Some((limit, limiter)) = limiter else {
            return Ok(());
        };
        limiter.check_key(key).map_err(|not_yet| {
            let wait = not_yet
                .wait_time_from(self.clock.now())
                .as_secs()
                .saturating_add(1);
            AppError::new(ErrorCode::RateLimited, "too many requests with this credential")
                .with("limitPerMinute", *limit)
                .retry_after(wait)
        })
    }

    /// Forgets buckets that are full again.
    pub fn tidy(&self) {
        for (_, limiter) in self.classes.iter().flatten() {
            limiter.retain_recent();
        }
    }
}
