//! Worker loops: each runs an idempotent job by a timer and goes on after a failure.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use turnpike_app::sweeper;

use crate::http::App;
use crate::run::Roles;

/// Prices are read again this soon after they changed.
const REFRESH: Duration = Duration::from_millis(500);
/// How often the origins of pages that browsers may call from are read again.
const ORIGINS: Duration = Duration::from_secs(5);
/// How often the keys of end users' tokens are read again.
const KEYS: Duration = Duration::from_secs(10);
/// How often balances are compared with the thresholds of automatic top-ups.
const AUTO_TOPUPS: Duration = Duration::from_secs(2);
/// How often the facilitator is asked what it can do.
const FACILITATOR: Duration = Duration::from_mins(1);
/// The same while it has not said so yet.
const FACILITATOR_DOWN: Duration = Duration::from_secs(3);
/// How often paid calls are looked for that nobody works on.
const SETTLEMENTS: Duration = Duration::from_secs(1);
/// How often expired answers and idle rate limits are forgotten.
const TIDY: Duration = Duration::from_mins(1);

/// How long the row of an end user's token outlives it: longer than any call that was asked with it.
const TOKENS_KEPT_MS: i64 = 2 * 86_400_000;

/// How often events that are past their retention are removed.
const RETENTION: Duration = Duration::from_mins(10);
/// How often the work of the webhook worker is counted.
const COUNTS: Duration = Duration::from_secs(2);

/// Starts the loops of this process: prices and rate limits wherever calls are served, the rest on workers. What is
/// returned ends after `stop`, when the attempts of webhooks that run have been recorded.
pub(crate) fn start(app: &Arc<App>, stop: &CancellationToken, roles: Roles) -> Option<JoinHandle<()>> {
    spawn(app, stop, REFRESH, |app| async move {
        app.service.shelf.refresh(&*app.service.store).await
    });
    spawn(app, stop, REFRESH, |app| async move {
        app.service.tools.refresh().await
    });
    spawn(app, stop, TIDY, |app| async move {
        app.service.limits.tidy();
        app.service.end_users.tidy();
        Ok(())
    });
    spawn(
        app,
        stop,
        KEYS,
        |app| async move { app.service.vault.refresh().await },
    );
    // A provider that is down is said in the log; its keys go on working meanwhile.
    spawn(app, stop, KEYS, |app| async move {
        app.service.sessions.verifier().refresh().await
    });
    spawn(app, stop, ORIGINS, |app| async move {
        app.origins.refresh(&*app.service.store).await
    });
    // A process also ends what it left itself, worker or not.
    let sweep_every = Duration::from_secs(app.service.config.calls.sweep_secs.max(1));
    spawn(app, stop, sweep_every, |app| async move {
        let swept = sweeper::sweep(&app.service.engine).await?;
        app.metrics.swept_calls.inc_by(swept.expired);
        let live = i64::try_from(app.service.engine.live_calls()).unwrap_or(i64::MAX);
        app.metrics.live_calls.set(live);
        Ok(())
    });
    // What the facilitator can do is asked again, and where it is down at the start.
    spawn(app, stop, FACILITATOR, |app| async move {
        match &app.service.paid_calls {
            Some(desk) => desk.refresh().await,
            None => Ok(()),
        }
    });
    spawn(app, stop, FACILITATOR_DOWN, |app| async move {
        match &app.service.paid_calls {
            Some(desk) if !desk.is_ready() => desk.refresh().await,
            Some(_) | None => Ok(()),
        }
    });
    // A process also ends what it left itself, worker or not.
    spawn(app, stop, SETTLEMENTS, |app| async move {
        match &app.service.paid_calls {
            Some(desk) => desk.sweep_abandoned().await.map(drop),
            None => Ok(()),
        }
    });
    if roles.worker {
        spawn(app, stop, SETTLEMENTS, |app| async move {
            let waiting = app.service.store.count_open_settlements().await?;
            app.metrics
                .waiting_settlements
                .set(i64::try_from(waiting).unwrap_or(i64::MAX));
            let Some(desk) = &app.service.paid_calls else {
                return Ok(());
            };
            let swept = desk.sweep_settlements().await?;
            if swept.left > 0 {
                tracing::warn!(
                    swept.looked_at,
                    swept.left,
                    "some paid calls wait for their settlement"
                );
            }
            Ok(())
        });
        let reconcile = Duration::from_secs(app.service.config.processor.sweep_secs.max(1));
        spawn(app, stop, reconcile, |app| async move {
            let swept = app.service.topups.sweep().await?;
            if swept.failed > 0 {
                tracing::warn!(swept.asked, swept.failed, "some top-ups could not be reconciled");
            }
            Ok(())
        });
        spawn(app, stop, reconcile, |app| async move {
            let swept = app.service.payouts.sweep().await?;
            if swept.open > 0 {
                tracing::warn!(swept.asked, swept.open, "some payouts are still under way");
            }
            Ok(())
        });
        let measure = Duration::from_secs(app.service.config.drift.interval_secs.max(1));
        spawn(app, stop, measure, |app| async move {
            app.service.drift.reconcile().await.map(drop)
        });
        spawn(app, stop, AUTO_TOPUPS, |app| async move {
            app.service.topups.begin_due().await.map(drop)
        });
        spawn(app, stop, TIDY, |app| async move {
            sweeper::prune(&app.service.engine).await.map(drop)
        });
        spawn(app, stop, TIDY, |app| async move {
            let before = app.service.environment.now().plus_millis(-TOKENS_KEPT_MS);
            app.service.store.prune_tokens(before).await?;
            Ok(())
        });
        spawn(app, stop, TIDY, |app| async move {
            app.service.oauth.prune().await?;
            app.service.agents.prune().await.map(drop)
        });
        spawn(app, stop, TIDY, |app| async move {
            app.service.sessions.prune().await.map(drop)
        });
        spawn(app, stop, TIDY, |app| async move {
            app.service.quotes.prune().await?;
            app.service.approvals.prune().await.map(drop)
        });
        spawn(app, stop, RETENTION, |app| async move {
            app.service.webhooks.prune().await.map(drop)
        });
        spawn(app, stop, COUNTS, |app| async move {
            app.metrics.count_webhooks(&app.service.dispatcher.counts());
            Ok(())
        });
    }
    roles
        .worker
        .then(|| tokio::spawn(app.service.dispatcher.clone().run(stop.clone())))
}

fn spawn<F, W>(app: &Arc<App>, stop: &CancellationToken, every: Duration, job: W)
where
    W: Fn(Arc<App>) -> F + Send + 'static,
    F: Future<Output = Result<(), turnpike_app::AppError>> + Send,
{
    let (app, stop) = (app.clone(), stop.clone());
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _tick = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            if let Err(error) = job(app.clone()).await {
                tracing::warn!(%error, "a job failed and will run again");
            }
        }
    });
}
