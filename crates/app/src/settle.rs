//! Settlement: what a call costs in the end, by what the provider reported. Never more than the hold.

use turnpike_core::ledger::command::{Drift, DriftKind};
use turnpike_core::ledger::hold::StreamSettlement;
use turnpike_core::money::Micros;
use turnpike_core::pricing::Charge;
use turnpike_core::usage::Usage;
use turnpike_upstream::{Completion, StreamSummary};

use crate::engine::{Admitted, Done};
use crate::providers::FrozenPrice;
use crate::stream::StreamPlan;

/// What a finished completion costs: its usage at the frozen price, never more than the hold.
pub(crate) fn settle(hold: Charge, price: &FrozenPrice, completion: Completion) -> Done {
    let (charge, drift) = settle_usage(
        hold,
        price,
        completion.usage.as_ref(),
        completion.usage_fault.as_deref(),
    );
    Done {
        body: completion.body,
        charge,
        usage: completion.usage,
        drift,
    }
}

/// Turns a usage report into a charge and, where the two differ, a drift record.
fn settle_usage(
    hold: Charge,
    price: &FrozenPrice,
    usage: Option<&Usage>,
    fault: Option<&str>,
) -> (Charge, Option<Drift>) {
    let drift = |kind, detail: &str, loss| {
        Some(Drift {
            kind,
            detail: detail.into(),
            loss,
        })
    };
    match (usage, fault) {
        (_, Some(fault)) => (hold, drift(DriftKind::UsageImpossible, fault, Micros::ZERO)),
        (None, None) => (
            hold,
            drift(
                DriftKind::UsageMissing,
                "the provider reported no usage",
                Micros::ZERO,
            ),
        ),
        (Some(usage), None) => match price.cost(usage) {
            Ok(cost) if cost.effective <= hold.effective => (cost, None),
            Ok(cost) => {
                let loss = cost.base.saturating_sub_zero(hold.base);
                (
                    hold,
                    drift(
                        DriftKind::AboveHold,
                        "the reported usage costs more than the hold",
                        loss,
                    ),
                )
            }
            Err(error) => (
                hold,
                drift(DriftKind::UsageImpossible, &error.to_string(), Micros::ZERO),
            ),
        },
    }
}

/// What a stream costs in the end: never more than was captured.
pub(crate) fn stream_charge(
    admitted: &Admitted,
    plan: &StreamPlan,
    summary: &StreamSummary,
    broken: bool,
) -> (Charge, Option<Drift>, &'static str) {
    let settled = settle_usage(
        admitted.hold,
        &plan.price,
        summary.usage.as_ref(),
        summary.usage_fault.as_deref(),
    );
    let (charge, drift, kind) = if broken {
        broken_stream(admitted, plan, summary, settled)
    } else if plan.settlement == StreamSettlement::Usage {
        (settled.0, settled.1, "stream_true_up")
    } else {
        // The authorised amount is the price; that no usage came changes nothing.
        let drift = settled.1.filter(|drift| drift.kind != DriftKind::UsageMissing);
        (admitted.hold, drift, "stream_true_up")
    };
    (within(charge, &admitted.hold), drift, kind)
}

/// Only what was delivered is kept: the reported usage, or what the delivered bytes can be at most.
fn broken_stream(
    admitted: &Admitted,
    plan: &StreamPlan,
    summary: &StreamSummary,
    settled: (Charge, Option<Drift>),
) -> (Charge, Option<Drift>, &'static str) {
    const KIND: &str = "stream_undelivered";
    if summary.usage.is_some() {
        return (settled.0, settled.1, KIND);
    }
    let delivered = Usage {
        input: plan.prompt_bound,
        output: summary.delivered_bytes.min(plan.completion_bound),
        ..Usage::default()
    };
    let (charge, _) = settle_usage(admitted.hold, &plan.price, Some(&delivered), None);
    let drift = Drift {
        kind: DriftKind::UsageMissing,
        detail: "the stream broke off before its usage was reported".into(),
        loss: Micros::ZERO,
    };
    (charge, Some(drift), KIND)
}

/// `charge` with no part above that of `hold`. Margin is a difference of two amounts that were rounded up, so that a
/// smaller charge can have a margin that is larger by one µUSD; that µUSD goes to the base.
fn within(charge: Charge, hold: &Charge) -> Charge {
    let margin = charge.margin.min(hold.margin);
    let base = charge.effective.saturating_sub_zero(margin);
    let flat = charge.flat.min(margin);
    Charge {
        base,
        markup: margin.saturating_sub_zero(flat),
        flat,
        margin,
        effective: charge.effective,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnpike_core::money::PicoUsd;
    use turnpike_core::pricing::{EffectiveMarkup, charge};

    #[test]
    fn no_part_of_a_settled_stream_is_above_its_hold() {
        for bps in [1, 100, 333, 1000, 3333, 20_000] {
            let markup = EffectiveMarkup {
                bps,
                flat: Micros::new(2),
                ..EffectiveMarkup::NONE
            };
            for hold in (0..200).map(|step| PicoUsd::new(step * 777_777)) {
                let held = charge(hold, &markup).unwrap();
                for kept in (0..200)
                    .map(|step| PicoUsd::new(step * 777_777))
                    .filter(|kept| *kept <= hold)
                {
                    let kept = within(charge(kept, &markup).unwrap(), &held);
                    assert!(
                        kept.margin <= held.margin && kept.base <= held.base,
                        "{bps}: {kept:?} of {held:?}"
                    );
                    assert_eq!(kept.base.checked_add(kept.margin), Some(kept.effective));
                    assert!(kept.effective <= held.effective);
                }
            }
        }
    }
}
