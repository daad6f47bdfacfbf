//! Prometheus metrics. No label names a tenant, a user or a key.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use turnpike_app::webhooks::DispatchCounts;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// The service's metrics.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RouteLabels, Counter>,
    duration: Histogram,
    pub(crate) live_calls: Gauge,
    pub(crate) swept_calls: Counter,
    pub(crate) waiting_settlements: Gauge,
    webhook_attempts: Family<OutcomeLabels, Counter>,
}

impl Metrics {
    /// Metrics at zero.
    pub(crate) fn new() -> Self {
        let buckets = [
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0,
        ];
        let metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            duration: Histogram::new(buckets),
            live_calls: Gauge::default(),
            swept_calls: Counter::default(),
            waiting_settlements: Gauge::default(),
            webhook_attempts: Family::default(),
        };
        let Self {
            mut registry,
            requests,
            duration,
            live_calls,
            swept_calls,
            waiting_settlements,
            webhook_attempts,
        } = metrics;
        registry.register(
            "turnpike_http_requests",
            "Requests by route and status",
            requests.clone(),
        );
        registry.register(
            "turnpike_http_request_duration_seconds",
            "Time to the response head",
            duration.clone(),
        );
        registry.register(
            "turnpike_live_calls",
            "Calls this process works on",
            live_calls.clone(),
        );
        registry.register(
            "turnpike_swept_calls",
            "Abandoned calls that were ended",
            swept_calls.clone(),
        );
        registry.register(
            "turnpike_waiting_settlements",
            "Paid calls that are answered and neither paid nor given up",
            waiting_settlements.clone(),
        );
        registry.register(
            "turnpike_webhook_attempts",
            "Attempts to tell webhook endpoints of events, by outcome",
            webhook_attempts.clone(),
        );
        Self {
            registry,
            requests,
            duration,
            live_calls,
            swept_calls,
            waiting_settlements,
            webhook_attempts,
        }
    }

    /// Counts what the webhook worker has done.
    pub(crate) fn count_webhooks(&self, counts: &DispatchCounts) {
        let (succeeded, failed, lost) = counts.take();
        for (outcome, count) in [("succeeded", succeeded), ("failed", failed), ("lost", lost)] {
            self.webhook_attempts
                .get_or_create(&OutcomeLabels { outcome })
                .inc_by(count);
        }
    }

    /// Counts a request.
    pub(crate) fn request(&self, route: &str, status: u16, elapsed: Duration) {
        self.requests
            .get_or_create(&RouteLabels {
                route: route.to_owned(),
                status,
            })
            .inc();
        self.duration.observe(elapsed.as_secs_f64());
    }

    fn render(&self) -> String {
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &self.registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        text
    }
}

/// Serves the metrics on a listener of their own: any request is answered with the text.
pub(crate) async fn serve(metrics: Arc<Metrics>, listener: TcpListener) {
    loop {
        let Ok((mut stream, _peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let body = metrics.render();
        tokio::spawn(async move {
            let mut head = [0; 4096];
            let work = async {
                if stream.read(&mut head).await? == 0 {
                    return Ok(());
                }
                let response = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/openmetrics-text; version=1.0.0\r\n\
                     content-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(response.as_bytes()).await?;
                stream.shutdown().await
            };
            if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(5), work).await {
                tracing::debug!(%error, "a metrics reader went away");
            }
        });
    }
}
