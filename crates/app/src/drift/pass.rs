//! One pass: measures days and submits what they show. The ledger decides what is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use turnpike_core::ids::{CommandId, TenantId};
use turnpike_core::ledger::command::{DriftChange, DriftReport};
use turnpike_core::ledger::drift::{DriftEvidence, DriftFigures, DriftKey, apportion};
use turnpike_core::ledger::{Action, Command, Outcome};
use turnpike_core::money::Micros;
use turnpike_core::time::{Day, Timestamp};
use turnpike_store::{DriftImport, SubmitError};

use super::{DriftDesk, DriftSweep, add, is_final};
use crate::error::AppError;

/// Reports under way at once.
const AT_ONCE: usize = 32;

/// A day of a provider with an invoice, all workspaces together.
pub(super) struct Invoice {
    pub(super) total: DriftFigures,
    pub(super) drifts: bool,
    /// Whether any call of that day is known at all.
    pub(super) known: bool,
    /// Each workspace that has calls, with its share.
    shares: BTreeMap<TenantId, DriftFigures>,
}

impl Invoice {
    fn of(&self, tenant: TenantId) -> DriftFigures {
        self.shares.get(&tenant).copied().unwrap_or_default()
    }
}

/// A pass under way.
pub(super) struct Pass<'a> {
    desk: &'a DriftDesk,
    pub(super) now: Timestamp,
    /// What workspaces were told of and is not over, and what showed it.
    open: Vec<(DriftKey, DriftEvidence)>,
    pub(super) done: DriftSweep,
}

impl<'a> Pass<'a> {
    pub(super) async fn begin(desk: &'a DriftDesk) -> Result<Self, AppError> {
        let open = desk.store.list_open_drifts().await?;
        Ok(Self {
            desk,
            now: desk.environment.now(),
            open: open
                .into_iter()
                .map(|(key, window)| (key, window.evidence))
                .collect(),
            done: DriftSweep::default(),
        })
    }

    /// Compares an invoice with the ledger, and tells nobody.
    pub(super) async fn weigh(&self, import: &DriftImport) -> Result<Invoice, AppError> {
        let costs = self
            .desk
            .store
            .day_costs(&import.provider, import.day, None)
            .await?;
        let metered: Vec<Micros> = costs.iter().map(|costs| costs.metered).collect();
        let mut sum = Micros::ZERO;
        for part in &metered {
            sum = add(sum, *part)?;
        }
        let total = DriftFigures {
            metered_usd: sum,
            provider_usd: import.amount,
        };
        let parts = apportion(import.amount, &metered).unwrap_or_else(|| vec![Micros::ZERO; metered.len()]);
        let shares = costs.iter().zip(parts).map(|(costs, part)| {
            let figures = DriftFigures {
                metered_usd: costs.metered,
                provider_usd: part,
            };
            (costs.tenant, figures)
        });
        Ok(Invoice {
            total,
            drifts: self.desk.threshold.is_reached(&total),
            known: !costs.is_empty(),
            shares: shares.collect(),
        })
    }

    /// Compares an invoice with the ledger, and tells whom it concerns.
    pub(super) async fn judge(&mut self, import: &DriftImport) -> Result<(Invoice, DriftSweep), AppError> {
        let invoice = self.weigh(import).await?;
        let provider: Arc<str> = import.provider.as_str().into();
        let report = |day, figures| DriftReport {
            provider: provider.clone(),
            day,
            measured_day: import.day,
            figures,
            judged: invoice.total,
            evidence: DriftEvidence::Imported,
            threshold: self.desk.threshold,
        };
        let reports: Vec<(TenantId, DriftReport)> = if invoice.drifts {
            let metered = invoice.shares.iter();
            metered
                .filter(|(_, figures)| !figures.metered_usd.is_zero())
                .map(|(tenant, figures)| (*tenant, report(import.day, *figures)))
                .collect()
        } else {
            // The day itself, and older ones that a day may end on which the workspace has calls.
            let open = self.open.iter().filter(|(key, _)| key.provider == provider);
            open.map(|(key, _)| (key, invoice.of(key.tenant)))
                .filter(|(key, figures)| {
                    key.day == import.day || (key.day < import.day && !figures.metered_usd.is_zero())
                })
                .map(|(key, figures)| (key.tenant, report(key.day, figures)))
                .collect()
        };
        let told = self.tell(reports).await?;
        Ok((invoice, told))
    }

    /// Looks for workspaces whose calls of yesterday or today lost much.
    pub(super) async fn measure_losses(&mut self) -> Result<(), AppError> {
        let today = Day::of(self.now);
        // Of nothing there is no drift, whatever the threshold.
        let least = self.desk.threshold.usd.max(Micros::new(1));
        for day in [today.previous(), today] {
            let mut reports = Vec::new();
            for (tenant, provider) in self.desk.store.list_day_losses(day, least).await? {
                let provider: Arc<str> = provider.into();
                if self.invoice_of(&provider, day).await?.is_some() {
                    continue;
                }
                let figures = self.reported(tenant, &provider, day).await?;
                if self.desk.threshold.is_reached(&figures) {
                    reports.push((tenant, self.own(&provider, (day, day), figures)));
                }
            }
            self.tell(reports).await?;
        }
        Ok(())
    }

    /// Looks whether drifts that the answers showed are over because yesterday agrees: they themselves, or the days
    /// before. An invoice of yesterday says so when it is judged.
    pub(super) async fn close_old(&mut self) -> Result<(), AppError> {
        let yesterday = Day::of(self.now).previous();
        let mut reports = Vec::new();
        let shown_by_answers =
            |(key, by): &&(DriftKey, DriftEvidence)| *by == DriftEvidence::Reported && key.day <= yesterday;
        for (key, _) in self.open.iter().filter(shown_by_answers) {
            if self.invoice_of(&key.provider, yesterday).await?.is_some() {
                continue;
            }
            let figures = self.reported(key.tenant, &key.provider, yesterday).await?;
            if !self.desk.threshold.is_reached(&figures) {
                reports.push((key.tenant, self.own(&key.provider, (key.day, yesterday), figures)));
            }
        }
        self.tell(reports).await.map(drop)
    }

    /// The invoice that speaks for a whole day.
    pub(super) async fn invoice_of(&self, provider: &str, day: Day) -> Result<Option<DriftImport>, AppError> {
        let found = self.desk.store.find_drift_import(provider, day).await?;
        Ok(found.filter(is_final))
    }

    /// What the answers of a day say it cost.
    async fn reported(&self, tenant: TenantId, provider: &str, day: Day) -> Result<DriftFigures, AppError> {
        let costs = self.desk.store.day_costs(provider, day, Some(tenant)).await?;
        let Some(costs) = costs.first() else {
            return Ok(DriftFigures::default());
        };
        Ok(DriftFigures {
            metered_usd: costs.metered,
            provider_usd: add(costs.metered, costs.loss)?,
        })
    }

    /// A report about a window, judged by the workspace's own figures.
    fn own(
        &self,
        provider: &Arc<str>,
        (day, measured_day): (Day, Day),
        figures: DriftFigures,
    ) -> DriftReport {
        DriftReport {
            provider: provider.clone(),
            day,
            measured_day,
            figures,
            judged: figures,
            evidence: DriftEvidence::Reported,
            threshold: self.desk.threshold,
        }
    }

    /// Submits reports; says what they did.
    async fn tell(&mut self, reports: Vec<(TenantId, DriftReport)>) -> Result<DriftSweep, AppError> {
        let desk = self.desk;
        let submitted = reports.into_iter().map(|(tenant, report)| async move {
            let key = DriftKey {
                tenant,
                provider: report.provider.clone(),
                day: report.day,
            };
            let evidence = report.evidence;
            let command = Command {
                id: CommandId(desk.environment.new_id()),
                tenant,
                at: desk.environment.now(),
                action: Action::DriftReport(Box::new(report)),
                note: None,
            };
            (key, evidence, desk.store.submit(command).await)
        });
        let answers: Vec<_> = futures_util::stream::iter(submitted)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut told = DriftSweep::default();
        let mut failed = false;
        for (key, evidence, answer) in answers {
            match answer {
                Ok(Outcome::Drift(DriftChange::Detected)) => {
                    told.detected = told.detected.saturating_add(1);
                    self.open.push((key, evidence));
                }
                Ok(Outcome::Drift(DriftChange::Resolved)) => {
                    told.resolved = told.resolved.saturating_add(1);
                    self.open.retain(|(open, _)| *open != key);
                }
                Ok(_unchanged) => {}
                Err(SubmitError::Rejected(rejection)) => {
                    tracing::warn!(tenant = %key.tenant, provider = &*key.provider, day = %key.day, %rejection, "a drift report was refused");
                }
                Err(error) => {
                    tracing::warn!(tenant = %key.tenant, %error, "a drift report is left for later");
                    failed = true;
                }
            }
        }
        self.done.detected = self.done.detected.saturating_add(told.detected);
        self.done.resolved = self.done.resolved.saturating_add(told.resolved);
        if failed {
            return Err(AppError::unavailable());
        }
        Ok(told)
    }
}
