//! When a sweep looks at a thing again that is not settled: the older it is, the more rarely.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use turnpike_core::time::Timestamp;

/// Longest time between two looks at the same thing.
const MAX_PAUSE_MS: i64 = 15 * 60_000;
/// Shortest time between two looks at the same thing.
const MIN_PAUSE_MS: i64 = 1000;

/// When each thing is looked at next.
pub(crate) struct Schedule<K>(Mutex<HashMap<K, Timestamp>>);

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Schedule<K> {
    /// Whether a thing of `age` may be looked at now; if so, it is not due again for a quarter of its age.
    pub(crate) fn is_due(&self, thing: K, now: Timestamp, age: i64) -> bool {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if next.get(&thing).is_some_and(|at| now < *at) {
            return false;
        }
        let pause = age.div_euclid(4).clamp(MIN_PAUSE_MS, MAX_PAUSE_MS);
        next.insert(thing, now.plus_millis(pause));
        true
    }

    /// Forgets what has been due for a while: it is settled.
    pub(crate) fn tidy(&self, now: Timestamp) {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        next.retain(|_, at| now.since(*at) < MAX_PAUSE_MS);
    }
}
