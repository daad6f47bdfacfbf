//! The command that measures a provider's day: it tells a tenant of a drift, and that it is over, once each.

use serde_json::json;

use super::apply::{Step, object};
use super::command::{DriftChange, DriftReport, Outcome};
use super::drift::{DriftEvidence, DriftKey, DriftResolution, DriftState, DriftWindow};
use super::event::EventType;
use super::rejection::Rejection;

pub(super) fn report(step: &mut Step<'_>, report: &DriftReport) -> Result<Outcome, Rejection> {
    let key = DriftKey {
        tenant: step.command.tenant,
        provider: report.provider.clone(),
        day: report.day,
    };
    if !step.books.drift_windows.is_loaded(&key) {
        return Err(Rejection::NotLoaded("drift window"));
    }
    if report.measured_day < report.day {
        return Err(Rejection::Mismatch("an earlier day says nothing about a drift"));
    }
    for figures in [&report.figures, &report.judged] {
        if figures.metered_usd.is_negative() || figures.provider_usd.is_negative() {
            return Err(Rejection::NotPositive);
        }
    }
    step.tenant()?;
    let window = step.books.drift_windows.get(&key).copied();
    let drifts = report.threshold.is_reached(&report.judged);
    let same_day = report.measured_day == report.day;
    let change = match window {
        None if drifts && same_day => detect(step, key, report)?,
        // INVARIANT: a window that was resolved is never told of again.
        Some(window) if window.state == DriftState::Detected && report.evidence >= window.evidence => {
            match (drifts, same_day) {
                (true, true) => measure_again(step, key, window, report),
                (false, true) if report.evidence == DriftEvidence::Imported || is_over(step, report) => {
                    let now = DriftWindow {
                        figures: report.figures,
                        bps: report.judged.bps(),
                        threshold_bps: report.threshold.bps,
                        evidence: report.evidence,
                        ..window
                    };
                    resolve(step, key, now, DriftResolution::Corrected)?
                }
                (false, false) if is_over(step, report) && !report.figures.metered_usd.is_zero() => {
                    resolve(step, key, window, DriftResolution::AgreesAgain)?
                }
                (true | false, false) | (false, true) => DriftChange::Unchanged,
            }
        }
        None | Some(_) => DriftChange::Unchanged,
    };
    Ok(Outcome::Drift(change))
}

fn is_over(step: &Step<'_>, report: &DriftReport) -> bool {
    report.measured_day.is_over(step.command.at)
}

fn detect(step: &mut Step<'_>, key: DriftKey, report: &DriftReport) -> Result<DriftChange, Rejection> {
    let window = DriftWindow {
        state: DriftState::Detected,
        evidence: report.evidence,
        figures: report.figures,
        bps: report.judged.bps(),
        threshold_bps: report.threshold.bps,
        detected_at: step.command.at,
        resolved_at: None,
        resolution: None,
    };
    emit(step, EventType::UsageDriftDetected, &key, &window)?;
    step.books.drift_windows.put(key, window);
    Ok(DriftChange::Detected)
}

/// Keeps the latest figures of a drift that goes on, for the event that ends it.
fn measure_again(
    step: &mut Step<'_>,
    key: DriftKey,
    window: DriftWindow,
    report: &DriftReport,
) -> DriftChange {
    let now = DriftWindow {
        evidence: report.evidence,
        figures: report.figures,
        bps: report.judged.bps(),
        threshold_bps: report.threshold.bps,
        ..window
    };
    if now != window {
        step.books.drift_windows.put(key, now);
    }
    DriftChange::Unchanged
}

fn resolve(
    step: &mut Step<'_>,
    key: DriftKey,
    mut window: DriftWindow,
    resolution: DriftResolution,
) -> Result<DriftChange, Rejection> {
    window.state = DriftState::Resolved;
    window.resolved_at = Some(step.command.at);
    window.resolution = Some(resolution);
    emit(step, EventType::UsageDriftResolved, &key, &window)?;
    step.books.drift_windows.put(key, window);
    Ok(DriftChange::Resolved)
}

fn emit(step: &mut Step<'_>, kind: EventType, key: &DriftKey, window: &DriftWindow) -> Result<(), Rejection> {
    let drift = window.figures.drift().ok_or(Rejection::Overflow)?;
    let mut data = object([
        ("driftId", json!(key.id())),
        ("provider", json!(key.provider)),
        ("windowStart", json!(key.day.start())),
        ("windowEnd", json!(key.day.end())),
        ("meteredUsd", json!(window.figures.metered_usd)),
        ("providerUsd", json!(window.figures.provider_usd)),
        ("driftUsd", json!(drift)),
        ("driftBps", json!(window.bps)),
        ("thresholdBps", json!(window.threshold_bps)),
    ]);
    if kind == EventType::UsageDriftResolved {
        data.insert("resolution".to_owned(), json!(window.resolution));
        data.insert("resolvedAt".to_owned(), json!(window.resolved_at));
    }
    step.emit(kind, None, &key.id().to_string(), data)
}
