//! Lanes: how many attempts each endpoint gets at once, so that a slow one costs nobody else anything.
//!
//! An endpoint begins with a few places, gains one with every success and loses half with every attempt that took
//! long or found nobody. What one endpoint holds is bounded, whatever waits for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use turnpike_core::ids::WebhookEndpointId;

/// Places of an endpoint that nothing is known of.
const FIRST_PLACES: usize = 4;
/// An attempt that takes longer than this costs its endpoint places.
const SLOW: Duration = Duration::from_secs(3);

struct Lane {
    running: usize,
    places: usize,
    /// Whether something waited for a place when there was none.
    starved: bool,
}

struct State {
    lanes: HashMap<WebhookEndpointId, Lane>,
    running: usize,
    /// Whether something waited when the whole worker was full.
    starved: bool,
}

/// The places of one worker.
pub(super) struct Lanes {
    state: Mutex<State>,
    most: usize,
    most_of_one: usize,
    freed: Notify,
}

impl Lanes {
    /// `most` places in all, up to `most_of_one` of them for one endpoint.
    pub(super) fn new(most: usize, most_of_one: usize) -> Self {
        Self {
            state: Mutex::new(State {
                lanes: HashMap::new(),
                running: 0,
                starved: false,
            }),
            most: most.max(1),
            most_of_one: most_of_one.max(1),
            freed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many attempts of `endpoint` may begin now, `planned` of the free places being promised to others.
    pub(super) fn free(&self, endpoint: WebhookEndpointId, planned: usize) -> usize {
        let mut state = self.state();
        let left = self.most.saturating_sub(state.running).saturating_sub(planned);
        state.starved |= left == 0;
        let first = FIRST_PLACES.min(self.most_of_one);
        let lane = state.lanes.entry(endpoint).or_insert(Lane {
            running: 0,
            places: first,
            starved: false,
        });
        let free = lane.places.saturating_sub(lane.running);
        lane.starved = free == 0;
        free.min(left)
    }

    /// An attempt begins.
    pub(super) fn enter(&self, endpoint: WebhookEndpointId) {
        let mut state = self.state();
        state.running = state.running.saturating_add(1);
        if let Some(lane) = state.lanes.get_mut(&endpoint) {
            lane.running = lane.running.saturating_add(1);
        }
    }

    /// An attempt is over; `took` and whether it `succeeded` say how many may run from now on.
    pub(super) fn leave(&self, endpoint: WebhookEndpointId, succeeded: bool, answered: bool, took: Duration) {
        let mut state = self.state();
        state.running = state.running.saturating_sub(1);
        let mut wake = std::mem::take(&mut state.starved);
        if let Some(lane) = state.lanes.get_mut(&endpoint) {
            lane.running = lane.running.saturating_sub(1);
            if took >= SLOW || !answered {
                lane.places = (lane.places / 2).max(1);
            } else if succeeded {
                lane.places = lane.places.saturating_add(1).min(self.most_of_one);
            }
            wake |= std::mem::take(&mut lane.starved);
            // Nothing is remembered of an endpoint that is as if nothing were known of it.
            if lane.running == 0 && lane.places == FIRST_PLACES.min(self.most_of_one) {
                state.lanes.remove(&endpoint);
            }
        }
        drop(state);
        if wake {
            self.freed.notify_one();
        }
    }

    /// Waits until a place is free that something waited for.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Forgets idle lanes; an endpoint that was slow is given another chance.
    pub(super) fn tidy(&self) {
        self.state().lanes.retain(|_, lane| lane.running > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn endpoint(number: u128) -> WebhookEndpointId {
        WebhookEndpointId(Uuid::from_u128(number))
    }

    #[test]
    fn one_endpoint_never_takes_the_places_of_the_others() {
        let lanes = Lanes::new(100, 32);
        let (slow, quick) = (endpoint(1), endpoint(2));
        for _ in 0..lanes.free(slow, 0) {
            lanes.enter(slow);
        }
        assert_eq!(lanes.free(slow, 0), 0);
        assert_eq!(lanes.free(quick, 0), FIRST_PLACES);
        // Four that hang leave it with one place.
        for _ in 0..FIRST_PLACES {
            lanes.leave(slow, false, false, Duration::from_secs(15));
        }
        assert_eq!(lanes.free(slow, 0), 1);
        lanes.tidy();
        assert_eq!(lanes.free(slow, 0), FIRST_PLACES);
    }

    #[test]
    fn success_earns_places_up_to_the_bound() {
        let lanes = Lanes::new(40, 32);
        let quick = endpoint(1);
        for _ in 0..100 {
            assert!(lanes.free(quick, 0) > 0);
            lanes.enter(quick);
            lanes.leave(quick, true, true, Duration::from_millis(1));
        }
        assert_eq!(lanes.free(quick, 0), 32);
        assert_eq!(lanes.free(quick, 38), 2, "what others were promised is theirs");
        assert_eq!(lanes.free(quick, 50), 0);
        lanes.enter(quick);
        // A refusal at once is no slowness.
        lanes.leave(quick, false, true, Duration::from_millis(1));
        assert_eq!(lanes.free(quick, 0), 32);
    }
}
