//! Rate limits per credential: token buckets, one set per class of request.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
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
    /// Forms of the identity pages.
    SignIn,
}

/// What somebody can be taken to own who is connected from `address`: the address, of IPv6 the first 64 bits.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

fn class<K: Hash + Eq + Clone>(limit: u32) -> Option<(u32, DefaultKeyedRateLimiter<K>)> {
    let limit = NonZeroU32::new(limit)?;
    Some((limit.get(), RateLimiter::keyed(Quota::per_minute(limit))))
}

/// Limits by credential.
pub struct RateLimits<K: Hash + Eq + Clone> {
    classes: [Option<(u32, DefaultKeyedRateLimiter<K>)>; 5],
    clock: DefaultClock,
}

impl<K: Hash + Eq + Clone> RateLimits<K> {
    /// Limits of so many calls, reads, changes and top-ups a minute; 0 = unlimited.
    pub fn new(calls: u32, reads: u32, mutations: u32, topups: u32) -> Self {
        Self {
            classes: [class(calls), class(reads), class(mutations), class(topups), None],
            clock: DefaultClock::default(),
        }
    }

    /// The same with so many forms of the identity pages a minute; 0 = unlimited.
    #[must_use]
    pub fn and_sign_ins(mut self, sign_ins: u32) -> Self {
        let [.., last] = &mut self.classes;
        *last = class(sign_ins);
        self
    }

    /// Takes one request of `class` from the bucket of `key`.
    ///
    /// # Errors
    /// `RATE_LIMITED`, with when to try again.
    pub fn check(&self, class: LimitClass, key: &K) -> Result<(), AppError> {
        let [calls, reads, mutations, topups, sign_ins] = &self.classes;
        let limiter = match class {
            LimitClass::Call => calls,
            LimitClass::Read => reads,
            LimitClass::Mutation => mutations,
            LimitClass::Topup => topups,
            LimitClass::SignIn => sign_ins,
        };
        let Some((limit, limiter)) = limiter else {
            return Ok(());
        };
        limiter.check_key(key).map_err(|not_yet| {
            let wait = not_yet
                .wait_time_from(self.clock.now())
                .as_secs()
                .saturating_add(1);
            let message = match class {
                LimitClass::SignIn => "too many forms from this address: try again in a minute",
                LimitClass::Call | LimitClass::Read | LimitClass::Mutation | LimitClass::Topup => {
                    "too many requests with this credential"
                }
            };
            AppError::new(ErrorCode::RateLimited, message)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_an_address_or_the_half_of_a_longer_one() {
        for (address, network) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            assert_eq!(network_of(address.parse().unwrap()).to_string(), network);
        }
    }

    #[test]
    fn forms_are_counted_by_themselves() {
        let limits = RateLimits::new(0, 0, 1, 0).and_sign_ins(2);
        for _ in 0..2 {
            limits.check(LimitClass::SignIn, &1).unwrap();
        }
        let refused = limits.check(LimitClass::SignIn, &1).unwrap_err();
        assert_eq!(
            (refused.code, refused.retry_after_secs.is_some()),
            (ErrorCode::RateLimited, true)
        );
        limits.check(LimitClass::SignIn, &2).unwrap();
        limits.check(LimitClass::Mutation, &1).unwrap();
        RateLimits::new(0, 0, 1, 0).check(LimitClass::SignIn, &1).unwrap();
    }
}
