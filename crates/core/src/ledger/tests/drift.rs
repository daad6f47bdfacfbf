//! Usage drift: a window is told of once when it drifts and once when it is over, whatever is repeated.

use proptest::prelude::*;

use super::*;
use crate::ids::DriftId;
use crate::ledger::drift::{
    DriftEvidence, DriftFigures, DriftResolution, DriftState, DriftThreshold, apportion,
};
use crate::time::Day;
use DriftChange::{Detected, Resolved, Unchanged};
use DriftEvidence::{Imported, Reported};

const THRESHOLD: DriftThreshold = DriftThreshold {
    bps: 100,
    usd: Micros::new(1_000_000),
};

fn figures(metered: i64, provider: i64) -> DriftFigures {
    DriftFigures {
        metered_usd: Micros::new(metered),
        provider_usd: Micros::new(provider),
    }
}

fn measured(day: Day, evidence: DriftEvidence, metered: i64, provider: i64) -> DriftReport {
    DriftReport {
        provider: "openai".into(),
        day,
        measured_day: day,
        figures: figures(metered, provider),
        judged: figures(metered, provider),
        evidence,
        threshold: THRESHOLD,
    }
}

impl Bench {
    fn today(&self) -> Day {
        Day::of(self.at)
    }

    fn drift(&mut self, report: DriftReport) -> DriftChange {
        let outcome = self.run(Action::DriftReport(Box::new(report))).unwrap();
        let Outcome::Drift(change) = outcome else {
            panic!("{outcome:?}")
        };
        change
    }

    fn window(&self, day: Day) -> DriftWindow {
        let key = DriftKey {
            tenant: TENANT,
            provider: "openai".into(),
            day,
        };
        *self.books.drift_windows.get(&key).unwrap()
    }

    fn windows_told(&self) -> (usize, usize) {
        (
            self.count(EventType::UsageDriftDetected),
            self.count(EventType::UsageDriftResolved),
        )
    }
}

#[test]
fn both_parts_of_the_threshold_have_to_be_reached() {
    for (metered, provider, bps, reached) in [
        (0, 0, 0, false),
        (0, 999_999, 10_000, false),
        (0, 1_000_000, 10_000, true),
        (1, 1_000_001, u32::MAX, true),
        (100_000_000, 101_000_000, 100, true),
        (100_000_000, 100_999_999, 99, false),
        (100_000_000, 99_000_000, 100, true),
        (100_000_000, 99_000_001, 99, false),
        (200_000_000, 201_999_999, 99, false),
        (10_000_000, 10_999_999, 999, false),
        (5_000_000, 0, 10_000, true),
        (i64::MAX, 0, 10_000, true),
        (0, i64::MAX, 10_000, true),
    ] {
        let figures = figures(metered, provider);
        assert_eq!(
            (figures.bps(), THRESHOLD.is_reached(&figures)),
            (bps, reached),
            "{figures:?}"
        );
    }
}

// Fault matrix 82, I8, I12
#[test]
fn a_window_is_told_of_once_and_resolved_once() {
    let mut bench = Bench::new();
    let day = bench.today();
    assert_eq!(
        bench.drift(measured(day, Reported, 1_000_000, 1_500_000)),
        Unchanged
    );
    assert_eq!(
        bench.drift(measured(day, Reported, 1_000_000, 10_000_000)),
        Detected
    );
    let detected = bench.last(EventType::UsageDriftDetected);
    let id = DriftId::derive(TENANT, "openai", day).to_string();
    assert_eq!(
        detected,
        serde_json::json!({
            "driftId": id, "provider": "openai", "windowStart": day.start(), "windowEnd": day.end(),
            "meteredUsd": "1", "providerUsd": "10", "driftUsd": "9", "driftBps": 90_000, "thresholdBps": 100,
            "externalUserId": null, "reference": id, "occurredAt": bench.at,
        })
    );
    // It goes on and the figures are kept; while the day runs, more that is metered well ends nothing.
    assert_eq!(
        bench.drift(measured(day, Reported, 2_000_000, 12_000_000)),
        Unchanged
    );
    assert_eq!(bench.window(day).figures, figures(2_000_000, 12_000_000));
    let diluted = measured(day, Reported, 2_000_000_000, 2_010_000_000);
    assert_eq!(bench.drift(diluted.clone()), Unchanged);
    bench.at = day.end();
    assert_eq!(bench.drift(diluted.clone()), Resolved);
    let resolved = bench.last(EventType::UsageDriftResolved);
    assert_eq!(
        (
            &resolved["driftId"],
            &resolved["resolution"],
            &resolved["resolvedAt"]
        ),
        (
            &serde_json::json!(id),
            &serde_json::json!("corrected"),
            &serde_json::json!(bench.at)
        )
    );
    assert_eq!(
        (&resolved["driftUsd"], &resolved["driftBps"]),
        (&"10".into(), &50.into())
    );
    for again in [
        diluted,
        measured(day, Reported, 0, 50_000_000),
        measured(day, Imported, 0, 50_000_000),
    ] {
        assert_eq!(bench.drift(again), Unchanged);
    }
    assert_eq!(bench.windows_told(), (1, 1));
}

#[test]
fn a_later_day_that_agrees_ends_a_drift() {
    let mut bench = Bench::new();
    let day = bench.today();
    bench.drift(measured(day, Reported, 1_000_000, 10_000_000));
    let later = |measured_day: Day, evidence, metered, provider| DriftReport {
        measured_day,
        figures: figures(metered, provider),
        judged: figures(metered, provider),
        ..measured(day, evidence, 0, 0)
    };
    // Not over yet; nothing metered; drifts too.
    assert_eq!(bench.drift(later(day.next(), Reported, 5, 5)), Unchanged);
    bench.at = day.next().end();
    assert_eq!(bench.drift(later(day.next(), Reported, 0, 0)), Unchanged);
    assert_eq!(bench.drift(later(day.next(), Reported, 5, 9_000_000)), Unchanged);
    assert_eq!(bench.windows_told(), (1, 0));
    assert_eq!(bench.drift(later(day.next(), Reported, 5, 5)), Resolved);
    assert_eq!(bench.window(day).resolution, Some(DriftResolution::AgreesAgain));
    // The event tells of the window, not of the day that ended it.
    let resolved = bench.last(EventType::UsageDriftResolved);
    assert_eq!(
        (
            &resolved["resolution"],
            &resolved["driftUsd"],
            &resolved["windowStart"]
        ),
        (
            &serde_json::json!("agrees_again"),
            &serde_json::json!("9"),
            &serde_json::json!(day.start())
        )
    );
    // A day that was never told of is not begun by a later one.
    let mut other = later(day.next(), Reported, 5, 9_000_000);
    other.provider = "other".into();
    assert_eq!(bench.drift(other), Unchanged);
    let earlier = DriftReport {
        measured_day: day.previous(),
        ..measured(day, Reported, 0, 0)
    };
    assert!(bench.run(Action::DriftReport(Box::new(earlier))).is_err());
    assert_eq!(bench.windows_told(), (1, 1));
}

#[test]
fn what_an_invoice_shows_only_an_invoice_takes_back() {
    let mut bench = Bench::new();
    let day = bench.today();
    bench.at = day.next().end();
    assert_eq!(
        bench.drift(measured(day, Imported, 10_000_000, 12_000_000)),
        Detected
    );
    // The usage in the answers cannot know that the price is wrong.
    assert_eq!(
        bench.drift(measured(day, Reported, 10_000_000, 10_000_000)),
        Unchanged
    );
    assert_eq!(
        bench.drift(measured(day, Reported, 10_000_000, 15_000_000)),
        Unchanged
    );
    assert_eq!(bench.window(day).figures, figures(10_000_000, 12_000_000));
    let next = DriftReport {
        measured_day: day.next(),
        ..measured(day, Reported, 10_000_000, 10_000_000)
    };
    assert_eq!(bench.drift(next.clone()), Unchanged);
    let invoiced = DriftReport {
        evidence: Imported,
        ..next
    };
    assert_eq!(bench.drift(invoiced), Resolved);
    assert_eq!(bench.windows_told(), (1, 1));
}

#[test]
fn an_invoice_ends_what_the_answers_showed_even_today() {
    let mut bench = Bench::new();
    let day = bench.today();
    bench.drift(measured(day, Reported, 1_000_000, 10_000_000));
    assert_eq!(
        bench.drift(measured(day, Imported, 1_000_000, 1_000_000)),
        Resolved
    );
    assert_eq!(bench.window(day).resolution, Some(DriftResolution::Corrected));
}

#[test]
fn the_threshold_is_for_what_is_judged_and_the_event_tells_of_the_tenant() {
    let mut bench = Bench::new();
    let day = bench.today();
    let report = DriftReport {
        figures: figures(10, 11),
        judged: figures(100_000_000, 110_000_000),
        ..measured(day, Imported, 0, 0)
    };
    assert_eq!(bench.drift(report), Detected);
    let told = bench.last(EventType::UsageDriftDetected);
    assert_eq!(
        (&told["driftUsd"], &told["driftBps"]),
        (&serde_json::json!("0.000001"), &serde_json::json!(1000))
    );
    let negative = measured(day, Imported, -1, 0);
    assert_eq!(
        bench.run(Action::DriftReport(Box::new(negative))),
        Err(Rejection::NotPositive)
    );
}

#[test]
fn an_invoice_is_divided_without_a_rest() {
    let parts = |total, weights: &[i64]| {
        let weights: Vec<Micros> = weights.iter().copied().map(Micros::new).collect();
        apportion(Micros::new(total), &weights).map(|parts| parts.iter().map(|p| p.get()).collect::<Vec<_>>())
    };
    assert_eq!(parts(10, &[1, 1, 1]), Some(vec![4, 3, 3]));
    assert_eq!(parts(11, &[1, 1, 1]), Some(vec![4, 4, 3]));
    assert_eq!(parts(0, &[1, 2]), Some(vec![0, 0]));
    assert_eq!(parts(7, &[0, 5]), Some(vec![0, 7]));
    assert_eq!(
        parts(i64::MAX, &[i64::MAX, i64::MAX]),
        Some(vec![i64::MAX / 2 + 1, i64::MAX / 2])
    );
    for (total, weights) in [(5, &[][..]), (5, &[0, 0]), (-1, &[1]), (1, &[2, -1])] {
        assert_eq!(parts(total, weights), None, "{total} by {weights:?}");
    }
}

#[derive(Clone, Copy, Debug)]
struct Told {
    day: i64,
    later: i64,
    imported: bool,
    metered: i64,
    provider: i64,
    sleep: bool,
}

fn told() -> impl Strategy<Value = Told> {
    let amount = || prop::sample::select(vec![0, 1, 999_999, 1_000_000, 1_010_000, 50_000_000]);
    (
        0_i64..3,
        -1_i64..3,
        any::<bool>(),
        amount(),
        amount(),
        any::<bool>(),
    )
        .prop_map(|(day, later, imported, metered, provider, sleep)| Told {
            day,
            later,
            imported,
            metered,
            provider,
            sleep,
        })
}

proptest! {
    // Fault matrix 82
    #[test]
    fn no_order_of_reports_tells_twice(all in prop::collection::vec(told(), 1..60)) {
        let mut bench = Bench::new();
        let first = bench.today();
        for one in all {
            let day = Day::new(first.number() + one.day);
            let evidence = if one.imported { Imported } else { Reported };
            let mut report = measured(day, evidence, one.metered, one.provider);
            report.measured_day = Day::new(day.number() + one.later);
            let before = bench.windows_told();
            let result = bench.run(Action::DriftReport(Box::new(report)));
            let (detected, resolved) = bench.windows_told();
            let expected = match result {
                Ok(Outcome::Drift(Detected)) => (before.0 + 1, before.1),
                Ok(Outcome::Drift(Resolved)) => (before.0, before.1 + 1),
                _ => before,
            };
            prop_assert_eq!((detected, resolved), expected);
            if one.sleep {
                bench.at = bench.at.plus_millis(40_000_000);
            }
        }
        for kind in [EventType::UsageDriftDetected, EventType::UsageDriftResolved] {
            let mut ids: Vec<String> = bench
                .events
                .iter()
                .filter(|event| event.kind == kind)
                .map(|event| serde_json::from_str::<Value>(&event.data).unwrap()["driftId"].to_string())
                .collect();
            ids.sort();
            let count = ids.len();
            ids.dedup();
            prop_assert_eq!(ids.len(), count, "{} twice", kind);
        }
        let (detected, resolved) = bench.windows_told();
        prop_assert!(resolved <= detected);
        for (_, window) in bench.books.drift_windows.iter() {
            prop_assert_eq!(window.state == DriftState::Resolved, window.resolved_at.is_some());
        }
    }

    #[test]
    fn parts_sum_to_the_whole(total in 0_i64..=i64::MAX, weights in prop::collection::vec(0_i64..=i64::MAX, 1..20)) {
        let weights: Vec<Micros> = weights.into_iter().map(Micros::new).collect();
        let whole: i128 = weights.iter().map(|w| i128::from(w.get())).sum();
        match apportion(Micros::new(total), &weights) {
            None => prop_assert_eq!(whole, 0),
            Some(parts) => {
                let sum: i128 = parts.iter().map(|p| i128::from(p.get())).sum();
                prop_assert_eq!(sum, i128::from(total));
                for (part, weight) in parts.iter().zip(&weights) {
                    let scaled = i128::from(part.get()) * whole - i128::from(total) * i128::from(weight.get());
                    prop_assert!(scaled.abs() < whole);
                }
            }
        }
    }
}
