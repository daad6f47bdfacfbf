//! A facilitator over HTTP: `/verify`, `/settle` and `/supported`, with the chain behind it.
//!
//! The rule: one call is one request, and only a body that says `isValid` or `success` is a verdict; timeouts, broken
//! connections, error statuses without one and answers that contradict what was asked are unknown. A request of which
//! nothing was sent is sent once more: a connection that was kept may be closed by now. Headers of answers
//! go nowhere. Verifications cannot keep settlements waiting: each kind has requests of its own.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{Authorization, PaymentPayload, PaymentRequirements, Supported, X402_VERSION};

use super::answer::{read_settlement, read_supported, read_verdict};
use super::{ChainReader, Facilitator, FacilitatorError, Fate, Settled, SignedPayment, Verdict};
use crate::client::{Client, ClientSettings};
use crate::guard::Guard;
use crate::headers::{self, Accept};
use crate::provider::{BaseUrl, BuildError};
use crate::secret::Secret;

/// Largest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Most requests at once: of settlements, and of everything else.
const MAX_REQUESTS: usize = 64;
/// How long a request that settles nothing waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(2);

/// What an [`HttpFacilitator`] is built from.
#[derive(Clone, Debug)]
pub struct FacilitatorSettings {
    /// Where it is; `/verify`, `/settle` and `/supported` are added.
    pub url: String,
    /// Its key, sent as a bearer token.
    pub api_key: Option<Secret>,
    /// Name resolution, TCP and TLS together.
    pub connect_timeout: Duration,
    /// The whole of a verification.
    pub verify_timeout: Duration,
    /// The whole of a settlement, for which a block has to be waited for.
    pub settle_timeout: Duration,
}

impl FacilitatorSettings {
    /// The usual times for the facilitator at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            api_key: None,
            connect_timeout: Duration::from_secs(5),
            verify_timeout: Duration::from_secs(15),
            settle_timeout: Duration::from_mins(1),
        }
    }

    fn client(&self, total: Duration) -> Result<Client, BuildError> {
        Client::new(ClientSettings {
            guard: Guard::Operator,
            connect_timeout: self.connect_timeout,
            header_timeout: total,
            idle_timeout: total,
            total_timeout: total,
            max_idle_per_host: MAX_REQUESTS,
            max_response_bytes: MAX_ANSWER_BYTES,
            ..ClientSettings::default()
        })
    }
}

/// Requests of one kind.
#[derive(Debug)]
struct Lane {
    client: Client,
    turns: Semaphore,
    /// How long a request waits for its turn.
    wait: Duration,
}

/// A facilitator on the network.
#[derive(Debug)]
pub struct HttpFacilitator {
    base: BaseUrl,
    auth: Option<HeaderValue>,
    checks: Lane,
    settlements: Lane,
    chain: ChainReader,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    x402_version: u64,
    payment_payload: &'a PaymentPayload,
    payment_requirements: &'a PaymentRequirements,
}

impl HttpFacilitator {
    /// The facilitator of `settings`, whose settlements `chain` knows.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn new(settings: &FacilitatorSettings, chain: ChainReader) -> Result<Self, BuildError> {
        let lane = |total, wait| {
            settings.client(total).map(|client| Lane {
                client,
                turns: Semaphore::new(MAX_REQUESTS),
                wait,
            })
        };
        Ok(Self {
            base: BaseUrl::parse(&settings.url)?,
            auth: settings.api_key.as_ref().map(headers::bearer).transpose()?,
            checks: lane(settings.verify_timeout, TURN_WAIT)?,
            settlements: lane(settings.settle_timeout, settings.settle_timeout / 2)?,
            chain,
        })
    }

    async fn ask(
        &self,
        lane: &Lane,
        path: &str,
        body: Option<&SignedPayment>,
    ) -> Result<(StatusCode, Bytes), String> {
        let uri = self.base.join(path).map_err(|error| error.to_string())?;
        let (method, json) = match body {
            None => (Method::GET, Vec::new()),
            Some(payment) => (Method::POST, json_of(payment)?),
        };
        let Ok(Ok(_turn)) = timeout(lane.wait, lane.turns.acquire()).await else {
            return Err("not sent: too many requests to the facilitator at once".to_owned());
        };
        let head = headers::request_headers(Accept::Json, body.is_some(), self.auth.as_ref());
        let json = Bytes::from(json);
        let send = || {
            lane.client
                .send(method.clone(), uri.clone(), head.clone(), json.clone())
        };
        let mut deadline = lane.client.total_deadline();
        let response = match send().await {
            Err(error) if !error.sent() => {
                deadline = lane.client.total_deadline();
                send().await
            }
            response => response,
        };
        let response = response.map_err(|error| error.to_string())?;
        let status = response.status();
        let answer = lane.client.collect(response.into_body(), deadline).await;
        Ok((status, answer.map_err(|error| error.to_string())?))
    }
}

fn json_of(payment: &SignedPayment) -> Result<Vec<u8>, String> {
    let asked = Asked {
        x402_version: X402_VERSION,
        payment_payload: &payment.payload,
        payment_requirements: &payment.requirements,
    };
    serde_json::to_vec(&asked).map_err(|_unwritable| "not sent: the payment cannot be written".to_owned())
}

#[async_trait]
impl Facilitator for HttpFacilitator {
    async fn supported(&self) -> Result<Supported, FacilitatorError> {
        let (status, answer) = self
            .ask(&self.checks, "/supported", None)
            .await
            .map_err(FacilitatorError)?;
        read_supported(status, &answer).map_err(FacilitatorError)
    }

    async fn verify(&self, payment: &SignedPayment) -> Verdict {
        match self.ask(&self.checks, "/verify", Some(payment)).await {
            Ok((status, answer)) => read_verdict(status, &answer),
            Err(why) => Verdict::Unknown(why),
        }
    }

    async fn settle(&self, payment: &SignedPayment) -> Settled {
        match self.ask(&self.settlements, "/settle", Some(payment)).await {
            Ok((status, answer)) => read_settlement(status, &answer, &payment.requirements),
            Err(why) => Settled::Unknown(why),
        }
    }

    async fn fate(&self, authorization: &Authorization, since: Timestamp) -> Result<Fate, FacilitatorError> {
        self.chain.fate(authorization, since).await
    }

    fn is_simulated(&self) -> bool {
        false
    }
}
