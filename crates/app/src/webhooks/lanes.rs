//! Lanes: how many attempts each endpoint gets at once, so that a slow one costs nobody else anything.
//!
//! An endpoint begins with a few places, gains one with every success and loses half with every attempt that took
//! long or found nobody. What one endpoint holds is bounded, and so is what one workspace holds, and what all
//! endpoints hold together that were slow.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use turnpike_core::ids::{TenantId, WebhookEndpointId};

/// Places of an endpoint that nothing is known of.
const FIRST_PLACES: usize = 4;
/// An attempt that takes longer than this costs its endpoint places.
const SLOW: Duration = Duration::from_secs(3);
/// The part of all places that one workspace may hold.
const OF_WORKSPACE: usize = 4;
/// The part of all places that slow endpoints may hold together.
const OF_SLOW: usize = 8;

#[derive(Debug)]
struct Lane {
    running: usize,
    places: usize,
    /// Whether something waited for a place when there was none.
    starved: bool,
    /// How often it was looked at while nothing ran.
    idle: u32,
}

impl Lane {
    const fn new(first: usize) -> Self {
        Self {
            running: 0,
            places: first,
            starved: false,
            idle: 0,
        }
    }

    const fn is_slow(&self, first: usize) -> bool {
        self.places < first
    }
}

struct State {
    lanes: HashMap<WebhookEndpointId, Lane>,
    workspaces: HashMap<TenantId, usize>,
    running: usize,
    running_slowly: usize,
    /// Whether something waited for what many share.
    starved: bool,
}

/// Places promised in one look, before anything runs in them.
#[derive(Debug, Default)]
pub(super) struct Promised {
    all: usize,
    slow: usize,
    workspaces: HashMap<TenantId, usize>,
    endpoints: HashMap<WebhookEndpointId, usize>,
}

impl Promised {
    /// How many in all.
    pub(super) const fn all(&self) -> usize {
        self.all
    }
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
                workspaces: HashMap::new(),
                running: 0,
                running_slowly: 0,
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

    fn first_places(&self) -> usize {
        FIRST_PLACES.min(self.most_of_one)
    }

    /// Promises up to `wanted` places to `endpoint` of `tenant`; says how many.
    pub(super) fn promise(
        &self,
        promised: &mut Promised,
        tenant: TenantId,
        endpoint: WebhookEndpointId,
        wanted: usize,
    ) -> usize {
        let mut state = self.state();
        let first = self.first_places();
        let mine = promised.endpoints.get(&endpoint).copied().unwrap_or(0);
        let of_workspace = promised.workspaces.get(&tenant).copied().unwrap_or(0);
        let workspace = state.workspaces.get(&tenant).copied().unwrap_or(0);
        let share = |part: usize| self.most.div_ceil(part).max(1);
        let left = |most: usize, running: usize, promised: usize| {
            most.saturating_sub(running).saturating_sub(promised)
        };
        let mut shared = left(self.most, state.running, promised.all).min(left(
            share(OF_WORKSPACE),
            workspace,
            of_workspace,
        ));
        let slowly = state.running_slowly;
        let lane = state.lanes.entry(endpoint).or_insert(Lane::new(first));
        let slow = lane.is_slow(first);
        if slow {
            shared = shared.min(left(share(OF_SLOW), slowly, promised.slow));
        }
        let own = left(lane.places, lane.running, mine);
        lane.starved |= own == 0;
        state.starved |= shared == 0;
        drop(state);
        let granted = own.min(shared).min(wanted);
        if granted > 0 {
            promised.all = promised.all.saturating_add(granted);
            promised.slow = promised.slow.saturating_add(if slow { granted } else { 0 });
            add(promised.workspaces.entry(tenant), granted);
            add(promised.endpoints.entry(endpoint), granted);
        }
        granted
    }

    /// An attempt begins. What is returned says whether it counts as slow, for [`Self::leave`].
    pub(super) fn enter(&self, tenant: TenantId, endpoint: WebhookEndpointId) -> bool {
        let mut state = self.state();
        let first = self.first_places();
        state.running = state.running.saturating_add(1);
        add(state.workspaces.entry(tenant), 1);
        let lane = state.lanes.entry(endpoint).or_insert(Lane::new(first));
        lane.running = lane.running.saturating_add(1);
        let slow = lane.is_slow(first);
        if slow {
            state.running_slowly = state.running_slowly.saturating_add(1);
        }
        slow
    }

    /// An attempt is over; `end` says how many may run from now on.
    pub(super) fn leave(&self, tenant: TenantId, endpoint: WebhookEndpointId, slow: bool, end: &End) {
        let mut state = self.state();
        let first = self.first_places();
        state.running = state.running.saturating_sub(1);
        if slow {
            state.running_slowly = state.running_slowly.saturating_sub(1);
        }
        if let Entry::Occupied(mut workspace) = state.workspaces.entry(tenant) {
            *workspace.get_mut() = workspace.get().saturating_sub(1);
            if *workspace.get() == 0 {
                workspace.remove();
            }
        }
        let mut wake = std::mem::take(&mut state.starved);
        if let Entry::Occupied(mut entry) = state.lanes.entry(endpoint) {
            let lane = entry.get_mut();
            lane.running = lane.running.saturating_sub(1);
            if end.took >= SLOW || !end.answered {
                lane.places = (lane.places / 2).max(1);
            } else if end.succeeded {
                lane.places = lane.places.saturating_add(1).min(self.most_of_one);
            }
            wake |= std::mem::take(&mut lane.starved);
            // Nothing is remembered of an endpoint that is as if nothing were known of it.
            if lane.running == 0 && lane.places == first {
                entry.remove();
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

    /// Forgets idle lanes; those of endpoints that were slow only after `patience` of these, since until then they
    /// share what slow ones may hold.
    pub(super) fn tidy(&self, patience: u32) {
        let first = self.first_places();
        self.state().lanes.retain(|_, lane| {
            lane.idle = if lane.running > 0 {
                0
            } else {
                lane.idle.saturating_add(1)
            };
            lane.running > 0 || (lane.is_slow(first) && lane.idle <= patience)
        });
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) succeeded: bool,
    /// Whether a status came back.
    pub(super) answered: bool,
    pub(super) took: Duration,
}

fn add<K>(entry: Entry<'_, K, usize>, more: usize) {
    let count = entry.or_insert(0);
    *count = count.saturating_add(more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const QUICK: End = End {
        succeeded: true,
        answered: true,
        took: Duration::from_millis(1),
    };
    const HUNG: End = End {
        succeeded: false,
        answered: false,
        took: Duration::from_secs(15),
    };

    fn endpoint(number: u128) -> WebhookEndpointId {
        WebhookEndpointId(Uuid::from_u128(number))
    }

    fn tenant(number: u128) -> TenantId {
        TenantId(Uuid::from_u128(number))
    }

    fn free(lanes: &Lanes, of: u128, number: u128) -> usize {
        lanes.promise(&mut Promised::default(), tenant(of), endpoint(number), usize::MAX)
    }

    #[test]
    fn one_endpoint_never_takes_the_places_of_the_others() {
        let lanes = Lanes::new(400, 32);
        let slow: Vec<bool> = (0..FIRST_PLACES)
            .map(|_| lanes.enter(tenant(1), endpoint(1)))
            .collect();
        assert_eq!(slow, [false; FIRST_PLACES]);
        assert_eq!(free(&lanes, 1, 1), 0);
        assert_eq!(free(&lanes, 2, 2), FIRST_PLACES);
        // Four that hang leave it with one place.
        for _ in 0..FIRST_PLACES {
            lanes.leave(tenant(1), endpoint(1), false, &HUNG);
        }
        assert_eq!(free(&lanes, 1, 1), 1);
        lanes.tidy(1);
        assert_eq!(free(&lanes, 1, 1), 1);
        lanes.tidy(1);
        assert_eq!(free(&lanes, 1, 1), FIRST_PLACES);
    }

    #[test]
    fn success_earns_places_up_to_the_bound() {
        let lanes = Lanes::new(400, 32);
        for _ in 0..100 {
            assert!(free(&lanes, 1, 1) > 0);
            let slow = lanes.enter(tenant(1), endpoint(1));
            lanes.leave(tenant(1), endpoint(1), slow, &QUICK);
        }
        assert_eq!(free(&lanes, 1, 1), 32);
        let mut promised = Promised::default();
        assert_eq!(lanes.promise(&mut promised, tenant(1), endpoint(1), 30), 30);
        assert_eq!(
            lanes.promise(&mut promised, tenant(1), endpoint(1), 30),
            2,
            "what was promised is not promised again"
        );
        // A refusal at once is no slowness.
        let slow = lanes.enter(tenant(1), endpoint(1));
        lanes.leave(
            tenant(1),
            endpoint(1),
            slow,
            &End {
                succeeded: false,
                ..QUICK
            },
        );
        assert_eq!(free(&lanes, 1, 1), 32);
    }

    #[test]
    fn a_workspace_with_many_endpoints_leaves_places_to_the_others() {
        let lanes = Lanes::new(40, 32);
        let mut promised = Promised::default();
        let granted: usize = (0..100)
            .map(|number| lanes.promise(&mut promised, tenant(1), endpoint(number), usize::MAX))
            .sum();
        assert_eq!(granted, 10);
        assert_eq!(
            lanes.promise(&mut promised, tenant(2), endpoint(200), usize::MAX),
            FIRST_PLACES
        );
    }

    #[test]
    fn endpoints_that_were_slow_share_a_few_places() {
        let lanes = Lanes::new(80, 32);
        for number in 0..50 {
            let slow = lanes.enter(tenant(number), endpoint(number));
            lanes.leave(tenant(number), endpoint(number), slow, &HUNG);
        }
        let mut promised = Promised::default();
        let granted: usize = (0..50)
            .map(|number| lanes.promise(&mut promised, tenant(number), endpoint(number), usize::MAX))
            .sum();
        assert_eq!(granted, 10);
        assert_eq!(
            lanes.promise(&mut promised, tenant(99), endpoint(99), usize::MAX),
            FIRST_PLACES
        );
    }

    #[test]
    fn a_lane_that_ended_before_an_attempt_began_is_made_anew() {
        let lanes = Lanes::new(40, 4);
        let slow = lanes.enter(tenant(1), endpoint(1));
        let mut promised = Promised::default();
        lanes.promise(&mut promised, tenant(1), endpoint(1), 1);
        lanes.leave(
            tenant(1),
            endpoint(1),
            slow,
            &End {
                succeeded: false,
                ..QUICK
            },
        );
        lanes.enter(tenant(1), endpoint(1));
        assert_eq!(free(&lanes, 1, 1), 3);
    }
}
