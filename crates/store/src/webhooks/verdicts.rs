//! What attempts say of their endpoint as a whole: that it works, that it fails, that it goes out of use.

use turnpike_core::webhook::DisabledReason;

use super::endpoints::{disable, endpoint_params};
use super::records::{DeliveryReport, Verdict};
use crate::sql::{Param, Statement};

/// What attempts at one endpoint say of it together: each verdict once, and no failure beside a success.
pub(super) fn verdict_statements(reports: &[&DeliveryReport]) -> Vec<Statement> {
    let works = reports
        .iter()
        .find(|report| report.verdict == Some(Verdict::Works));
    let find = |wanted: fn(Verdict) -> bool| reports.iter().find(|report| report.verdict.is_some_and(wanted));
    let fails = find(|verdict| verdict == Verdict::Fails);
    let hopeless = find(|verdict| matches!(verdict, Verdict::Hopeless(_)));
    let gone = find(|verdict| verdict == Verdict::Gone);
    let chosen = match works {
        Some(works) => [Some(works), None, gone],
        None => [fails, hopeless, gone],
    };
    let chosen = chosen.into_iter().flatten();
    chosen
        .filter_map(|report| Some(verdict_statement(report, report.verdict?)))
        .collect()
}

/// What a verdict does to the endpoint.
fn verdict_statement(report: &DeliveryReport, verdict: Verdict) -> Statement {
    let mut params = endpoint_params(report.tenant, report.endpoint);
    match verdict {
        Verdict::Works => Statement::new(
            "UPDATE webhook_endpoints SET failing_since = NULL
             WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND failing_since IS NOT NULL",
            params,
        ),
        Verdict::Fails => {
            params.push(Param::from(report.finished_at.millis()));
            Statement::new(
                "UPDATE webhook_endpoints SET failing_since = $4
                 WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND failing_since IS NULL",
                params,
            )
        }
        Verdict::Hopeless(since) => {
            // A success, or somebody who enabled it, may have come between the failures and this.
            let at = report.finished_at;
            let mut statement = disable(
                report.tenant,
                report.endpoint,
                DisabledReason::Failing,
                at,
                "AND failing_since <= $6",
            );
            statement.params.push(Param::from(since.millis()));
            statement
        }
        Verdict::Gone => {
            // What another address said says nothing about this one.
            let at = report.finished_at;
            let mut statement = disable(
                report.tenant,
                report.endpoint,
                DisabledReason::Gone,
                at,
                "AND url = $6",
            );
            statement.params.push(Param::from(&*report.url));
            statement
        }
    }
}
