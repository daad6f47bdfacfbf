//! What the clients of the bank know of each other: names of end users, top-ups, tokens, claims.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use turnpike_core::ids::{PayoutId, RefundId, TenantId};
use turnpike_core::ledger::command::{NewToken, NewTopup};

use crate::world::Dice;

pub(super) struct Board {
    pub(super) tenants: [TenantId; 2],
    users: usize,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// How often the end user of a slot was retired and replaced.
    generations: BTreeMap<(TenantId, usize), u32>,
    pub(super) topups: Vec<(TenantId, NewTopup)>,
    pub(super) refunds: Vec<(TenantId, NewTopup, RefundId, i64)>,
    pub(super) tokens: Vec<(TenantId, NewToken)>,
    pub(super) payouts: Vec<(TenantId, PayoutId)>,
}

/// One of `things`, the recent ones more often.
pub(super) fn recent<T: Clone>(things: &[T], dice: &mut Dice) -> Option<T> {
    let back = dice.roll(12) + 1;
    let back = usize::try_from(back).unwrap().min(things.len());
    things.get(things.len() - back).cloned().filter(|_| back > 0)
}

impl Board {
    pub(super) fn new(tenants: [TenantId; 2], users: usize) -> Self {
        Self {
            tenants,
            users,
            state: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn name(&self, tenant: TenantId, slot: usize) -> String {
        let generation = self
            .state()
            .generations
            .get(&(tenant, slot))
            .copied()
            .unwrap_or_default();
        format!("user-{slot}.{generation}")
    }

    pub(super) fn tenant(&self, dice: &mut Dice) -> TenantId {
        self.tenants[usize::try_from(dice.roll(2)).unwrap()]
    }

    pub(super) fn slot(&self, dice: &mut Dice) -> usize {
        usize::try_from(dice.roll(u64::try_from(self.users).unwrap())).unwrap()
    }

    /// The end user of `slot` has left; the next one of that slot has another name.
    pub(super) fn replace(&self, tenant: TenantId, slot: usize, name: &str) {
        if self.name(tenant, slot) == name {
            *self.state().generations.entry((tenant, slot)).or_default() += 1;
        }
    }
}
