//! Deliveries of events: their states, which events an endpoint wants, and when the next attempt is due.
//!
//! No I/O and no clock: instants and random numbers are arguments.

use crate::ledger::account::coded_enum;
use crate::ledger::event::EventType;
use crate::time::Timestamp;

coded_enum! {
    /// Where an attempt stands: `pending → delivering → succeeded | failed`, `canceled` when it will never be made.
    DeliveryStatus {
        /// Waits for its time.
        Pending = 0 "pending",
        /// A worker is at it.
        Delivering = 1 "delivering",
        /// The destination took it.
        Succeeded = 2 "succeeded",
        /// It did not, or nobody knows.
        Failed = 3 "failed",
        /// The endpoint went first, or a replay took its place.
        Canceled = 4 "canceled",
    }
}

coded_enum! {
    /// Why an endpoint gets nothing.
    DisabledReason {
        /// Somebody switched it off.
        Manual = 0 "manual",
        /// It answered 410.
        Gone = 1 "gone",
        /// It only failed for days.
        Failing = 2 "failing",
    }
}

/// The types of event that an endpoint wants, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMask(i64);

impl EventMask {
    /// Every type, those of later versions included.
    pub const ALL: Self = Self(i64::MAX);

    /// These types.
    pub fn of(types: &[EventType]) -> Self {
        Self(types.iter().fold(0, |bits, kind| bits | 1_i64 << kind.code()))
    }

    /// The bits as the store keeps them.
    pub const fn bits(self) -> i64 {
        self.0
    }

    /// What the store kept.
    pub const fn from_bits(bits: i64) -> Self {
        Self(bits)
    }

    /// Whether `kind` is wanted.
    pub const fn wants(self, kind: EventType) -> bool {
        self.0 >> kind.code() & 1 == 1
    }

    /// The wanted types by code; `None` = all.
    pub fn types(self) -> Option<Vec<EventType>> {
        (self != Self::ALL).then(|| {
            let all = EventType::ALL.iter().copied();
            all.filter(|kind| self.wants(*kind)).collect()
        })
    }
}

/// Longest that a destination may ask to be left alone: 24 hours, in milliseconds.
pub const MAX_RETRY_AFTER_MS: i64 = 86_400_000;

/// When attempts follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySchedule {
    /// Milliseconds before each attempt; the first one belongs to the first attempt.
    delays_ms: Vec<i64>,
}

impl RetrySchedule {
    /// A schedule of these delays, in milliseconds.
    pub const fn new(delays_ms: Vec<i64>) -> Self {
        Self { delays_ms }
    }

    /// How many attempts there are at most.
    pub fn steps(&self) -> i16 {
        i16::try_from(self.delays_ms.len()).unwrap_or(i16::MAX)
    }

    /// How long the first attempt waits, in milliseconds.
    pub fn first_delay_ms(&self) -> i64 {
        self.delays_ms.first().copied().unwrap_or(0)
    }

    /// When the attempt after the `step`-th (from 0) is due; `None` = that was the last.
    ///
    /// `roll` is a random number that moves the delay by up to a fifth either way; `retry_after_ms` is what the
    /// destination asked for, at most 24 hours of which count.
    pub fn next(
        &self,
        step: i16,
        now: Timestamp,
        roll: u64,
        retry_after_ms: Option<i64>,
    ) -> Option<Timestamp> {
        let next = usize::try_from(step).ok()?.checked_add(1)?;
        let delay = *self.delays_ms.get(next)?;
        // Four tenths of the delay, of which `roll` takes a part, on top of eight tenths.
        let span = delay.checked_mul(2)?.checked_div(5)?;
        let part = i64::try_from(u128::from(roll).checked_mul(u128::try_from(span).ok()?)? >> 64).ok()?;
        let jittered = delay.checked_sub(delay.checked_div(5)?)?.checked_add(part)?;
        let asked = retry_after_ms.unwrap_or(0).clamp(0, MAX_RETRY_AFTER_MS);
        Some(now.plus_millis(jittered.max(asked)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn usual() -> RetrySchedule {
        let seconds = [0, 5, 300, 1800, 7200, 18_000, 36_000, 36_000];
        RetrySchedule::new(
            seconds
                .iter()
                .map(|seconds: &i64| seconds.saturating_mul(1000))
                .collect(),
        )
    }

    // Fault matrix 170
    #[test]
    fn eight_attempts_within_a_fifth_of_the_schedule() {
        let schedule = usual();
        for (step, delay) in [
            5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 36_000_000,
        ]
        .into_iter()
        .enumerate()
        {
            let step = i16::try_from(step).unwrap();
            let at = |roll| schedule.next(step, NOW, roll, None).unwrap().since(NOW);
            assert_eq!(at(0), delay - delay / 5);
            assert!(
                (delay..=delay + 1).contains(&at(u64::MAX / 2 + 1)),
                "{}",
                at(u64::MAX / 2)
            );
            assert!(at(u64::MAX) < delay + delay / 5 && at(u64::MAX) > delay + delay / 5 - 2);
        }
        assert_eq!(schedule.next(7, NOW, 0, None), None);
        assert_eq!(schedule.next(7, NOW, 0, Some(5)), None);
    }

    #[test]
    fn a_destination_may_ask_for_a_day_at_most() {
        let at = |asked| usual().next(0, NOW, 0, Some(asked)).unwrap().since(NOW);
        assert_eq!(at(60_000), 60_000);
        assert_eq!(at(1), 4_000, "never sooner than the schedule");
        assert_eq!(at(i64::MAX), MAX_RETRY_AFTER_MS);
        assert_eq!(at(-5), 4_000);
    }

    #[test]
    fn a_mask_holds_its_types() {
        let two = EventMask::of(&[EventType::BurnFailed, EventType::UsageDriftResolved]);
        assert_eq!(
            two.types(),
            Some(vec![EventType::BurnFailed, EventType::UsageDriftResolved])
        );
        assert!(two.wants(EventType::BurnFailed) && !two.wants(EventType::TopupCompleted));
        assert_eq!(EventMask::ALL.types(), None);
        assert!(EventType::ALL.iter().all(|kind| EventMask::ALL.wants(*kind)));
        assert_eq!(EventMask::of(&[]).types(), Some(vec![]));
    }
}
