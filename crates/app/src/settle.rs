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
pub(crate) fn settle(admitted: &Admitted, price: &FrozenPrice, completion: Completion) -> Done {
    let (charge, drift) = settle_usage(
        admitted,
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
    admitted: &Admitted,
    price: &FrozenPrice,
    usage: Option<&Usage>,
    fault: Option<&str>,
) -> (Charge, Option<Drift>) {
    let hold = admitted.hold;
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
        admitted,
        &plan.price,
        summary.usage.as_ref(),
        summary.usage_fault.as_deref(),
    );
    if broken {
        // Only what was delivered is kept: the reported usage, or what the delivered bytes can be at most.
        if summary.usage.is_some() {
            return (settled.0, settled.1, "stream_undelivered");
        }
        let delivered = Usage {
            input: plan.prompt_bound,
            output: summary.delivered_bytes.min(plan.completion_bound),
            ..Usage::default()
        };
        let (charge, _) = settle_usage(admitted, &plan.price, Some(&delivered), None);
        return (charge, None, "stream_undelivered");
    }
    match plan.settlement {
        StreamSettlement::Usage => (settled.0, settled.1, "stream_true_up"),
        // The authorised amount is the price; only usage above it is worth a record.
        StreamSettlement::Fixed => {
            let above = settled.1.filter(|_| summary.usage.is_some());
            (admitted.hold, above, "stream_true_up")
        }
    }
}
