//! The engine of a metered call: hold → dispatch marker → provider → capture → answer.
//!
//! The work after the hold runs in a tracked task, not in the handler: a client that leaves cancels nothing.
//! A call is dispatched at most once per hold, and every end of it is one command of the ledger.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fail::fail_point;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CallId, CommandId, TenantId};
use turnpike_core::ledger::command::{
    Capture, Drift, DriftKind, NewHold, OutcomeKind, Release, StoredOutcome,
};
use turnpike_core::ledger::{Action, CallRef, Command, Outcome, Rejection};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::pricing::Charge;
use turnpike_core::usage::Usage;
use turnpike_store::{Store, SubmitError};
use turnpike_upstream::UpstreamError;

use crate::environment::{AppSettings, Environment};
use crate::error::AppError;

/// How often an end that must not be lost is tried, and how long to wait between tries.
const END_TRIES: u32 = 600;
/// The same for a call that was not sent.
const RELEASE_TRIES: u32 = 3;
const END_PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

/// What a caller is told about money, beside the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The call.
    pub call: CallId,
    /// Taken for it.
    pub charged: Micros,
    /// The payer's settled balance: right after the call, or now when replayed.
    pub balance: Micros,
    /// The payer's settled balance right after the call, as its stored body says.
    pub balance_then: Micros,
    /// How credits are shown.
    pub rate: CreditsPerDollar,
    /// Whether this is the stored outcome of an earlier attempt.
    pub replayed: bool,
    /// Whether nothing was called and nothing charged.
    pub simulated: bool,
}

/// The answer to a call.
#[derive(Debug)]
pub enum Answer {
    /// The provider's JSON.
    Json {
        /// The bytes.
        body: Bytes,
        /// About money.
        receipt: Receipt,
    },
    /// A running stream: chunks as they come. Its end is the channel's end.
    Stream {
        /// The chunks.
        chunks: mpsc::Receiver<Bytes>,
        /// About money.
        receipt: Receipt,
    },
    /// A stream that ended before, from its stored transcript.
    Transcript {
        /// The bytes.
        body: Bytes,
        /// About money.
        receipt: Receipt,
    },
}

/// Runs calls.
pub struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) settings: AppSettings,
    pub(crate) stopping: CancellationToken,
    tasks: TaskTracker,
    live: LiveCalls,
}

/// The calls that run in this process, and how many tasks work on each.
type LiveCalls = Arc<Mutex<HashMap<CallId, u32>>>;

/// Where the handler waits for a call's answer.
pub(crate) type AnswerSender = oneshot::Sender<Result<Answer, AppError>>;

/// What became of a hold.
pub(crate) enum Admission {
    /// It was taken.
    Held(Box<Admitted>),
    /// The idempotency key stands for this call already.
    Existing(CallId),
}

/// A call that was admitted: who it is for, and how to end it.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) tenant: TenantId,
    pub(crate) rate: CreditsPerDollar,
    pub(crate) call: CallRef,
    pub(crate) hold: Charge,
    _live: LiveGuard,
}

/// How a provider's work ended.
pub(crate) struct Done {
    pub(crate) body: Bytes,
    pub(crate) charge: Charge,
    pub(crate) usage: Option<Usage>,
    pub(crate) drift: Option<Drift>,
}

impl Engine {
    /// An engine over `store`.
    pub fn new(store: Arc<dyn Store>, environment: Arc<dyn Environment>, settings: AppSettings) -> Self {
        Self {
            store,
            environment,
            settings,
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
            live: LiveCalls::default(),
        }
    }

    /// Time, ids and randomness.
    pub fn environment(&self) -> &Arc<dyn Environment> {
        &self.environment
    }

    /// The calls this process works on; the sweeper leaves them alone.
    pub fn is_live(&self, call: CallId) -> bool {
        self.live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(&call)
    }

    /// How many calls this process works on.
    pub fn live_calls(&self) -> usize {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits for every running call to end.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Ends running streams with an error event; what they did not deliver is credited back.
    pub fn stop_streams(&self) {
        self.stopping.cancel();
    }

    pub(crate) async fn submit(&self, tenant: TenantId, action: Action) -> Result<Outcome, SubmitError> {
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant,
            at: self.environment.now(),
            action,
            note: None,
        };
        self.store.submit(command).await
    }

    /// Submits an end of a call that must not be lost: tries again for minutes while the store is away.
    pub(crate) async fn submit_end(&self, tenant: TenantId, action: Action) -> Result<Outcome, SubmitError> {
        self.submit_patiently(tenant, action, END_TRIES).await
    }

    async fn submit_patiently(
        &self,
        tenant: TenantId,
        action: Action,
        tries: u32,
    ) -> Result<Outcome, SubmitError> {
        let mut last = SubmitError::Busy;
        for attempt in 0..tries {
            if attempt > 0 {
                tokio::select! {
                    () = tokio::time::sleep(END_PAUSE) => {}
                    // The process ends: the sweeper of the next one does the rest.
                    () = self.stopping.cancelled() => return Err(last),
                }
            }
            match self.submit(tenant, action.clone()).await {
                Ok(outcome) => return Ok(outcome),
                Err(SubmitError::Rejected(rejection)) => return Err(SubmitError::Rejected(rejection)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Takes the hold.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        tenant: TenantId,
        rate: CreditsPerDollar,
        hold: NewHold,
        charge: Charge,
    ) -> Result<Admission, AppError> {
        let call = hold.reference();
        // Registered before the hold exists, so that no sweep can find it unregistered.
        let live = LiveGuard::new(self, call.call);
        let outcome = self.submit(tenant, Action::Hold(Box::new(hold))).await;
        fail_point!("after-hold");
        match outcome {
            Ok(Outcome::Held(_)) => Ok(Admission::Held(Box::new(Admitted {
                tenant,
                rate,
                call,
                hold: charge,
                _live: live,
            }))),
            Ok(Outcome::Existing(subject)) => Ok(Admission::Existing(CallId(subject))),
            Ok(_) => Err(AppError::internal(&"a hold was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, rate)),
        }
    }

    /// Runs `work` in a task of its own and waits for its answer: a client that leaves cancels nothing.
    pub(crate) async fn detach<T, F, W>(&self, work: W) -> Result<T, AppError>
    where
        W: FnOnce(oneshot::Sender<Result<T, AppError>>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        // In the caller's span, so that the log lines of the call carry its request id.
        // Boxed, because it is large and would be moved several times on its way into the task.
        self.tasks.spawn(Box::pin(work(answer)).in_current_span());
        answered
            .await
            .unwrap_or_else(|_dropped| Err(AppError::internal(&"a call ended without an answer")))
    }

    /// Marks the call as about to be sent.
    pub(crate) async fn mark_dispatched(&self, admitted: &Admitted) -> Result<(), AppError> {
        fail_point!("before-dispatch-marker");
        let marked = self
            .submit(admitted.tenant, Action::MarkDispatched(admitted.call.clone()))
            .await;
        fail_point!("after-dispatch-marker");
        match marked {
            Ok(_) => Ok(()),
            Err(error) => {
                // Nothing was sent, whatever became of the marker.
                self.release(admitted, ErrorCode::ServiceUnavailable, None, None)
                    .await;
                Err(AppError::from_submit(&error, admitted.rate))
            }
        }
    }

    /// Captures a finished call and makes its answer.
    pub(crate) async fn capture(&self, admitted: &Admitted, done: Done) -> Result<Answer, AppError> {
        fail_point!("before-capture");
        let outcome = self.stored(OutcomeKind::Success, done.body.clone());
        let capture = Capture {
            call: admitted.call.clone(),
            charge: done.charge,
            usage: done.usage,
            drift: done.drift,
            outcome: Some(outcome),
        };
        let captured = self
            .submit_end(admitted.tenant, Action::Capture(Box::new(capture)))
            .await;
        fail_point!("after-capture");
        match captured {
            Ok(Outcome::Captured { charged, balance }) => Ok(Answer::Json {
                body: done.body,
                receipt: receipt(admitted, charged, balance.posted),
            }),
            Ok(_) => Err(AppError::internal(&"a capture was answered by another outcome")),
            Err(SubmitError::Rejected(Rejection::HoldNotOpen(_))) => Err(AppError::new(
                ErrorCode::UpstreamTimeout,
                "the call took longer than its hold; nothing was charged",
            )),
            Err(error) => Err(AppError::from_submit(&error, admitted.rate)),
        }
    }

    /// Gives the hold back; `stored` is the failure that the same key is answered with from now on.
    pub(crate) async fn release(
        &self,
        admitted: &Admitted,
        code: ErrorCode,
        stored: Option<&AppError>,
        drift: Option<Drift>,
    ) {
        let outcome = stored.map(|error| self.stored(OutcomeKind::Failure, failure_document(error)));
        let release = Release {
            call: admitted.call.clone(),
            failure: code.as_str().into(),
            outcome,
            drift,
        };
        // Before dispatch the caller waits for this, and the sweeper can do it as well.
        let tries = if stored.is_some() {
            END_TRIES
        } else {
            RELEASE_TRIES
        };
        let released = self
            .submit_patiently(admitted.tenant, Action::Release(release), tries)
            .await;
        if let Err(error) = released {
            // The sweeper ends it later, in the customer's favour.
            tracing::error!(call = %admitted.call.call, %error, "a hold was not released");
        }
        fail_point!("after-release");
    }

    /// Ends a call that the provider failed: nothing is charged.
    pub(crate) async fn fail(&self, admitted: &Admitted, error: &UpstreamError) -> AppError {
        let failure = upstream_failure(error).with("callId", admitted.call.call.to_string());
        tracing::warn!(call = %admitted.call.call, %error, "a provider failed");
        let drift = error.outcome_unknown().then(|| Drift {
            kind: DriftKind::OutcomeUnknown,
            detail: error.to_string().into(),
            loss: admitted.hold.base,
        });
        let stored = error.sent().then_some(&failure);
        self.release(admitted, failure.code, stored, drift).await;
        failure
    }

    pub(crate) fn stored(&self, kind: OutcomeKind, body: Bytes) -> StoredOutcome {
        let keep = body.len() <= self.settings.max_stored_bytes;
        StoredOutcome {
            kind,
            body: keep.then_some(body),
            expires_at: self
                .environment
                .now()
                .plus_millis(self.settings.outcome_retention_ms),
        }
    }
}

/// Keeps a call on the list of running ones; also a panic takes it off.
#[derive(Debug)]
pub(crate) struct LiveGuard {
    live: LiveCalls,
    call: CallId,
}

impl LiveGuard {
    pub(crate) fn new(engine: &Engine, call: CallId) -> Self {
        let mut live = engine.live.lock().unwrap_or_else(PoisonError::into_inner);
        let tasks = live.entry(call).or_default();
        *tasks = tasks.saturating_add(1);
        drop(live);
        Self {
            live: engine.live.clone(),
            call,
        }
    }
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let left = live.get(&self.call).map_or(0, |tasks| tasks.saturating_sub(1));
        if left == 0 {
            live.remove(&self.call);
        } else {
            live.insert(self.call, left);
        }
    }
}

pub(crate) const fn receipt(admitted: &Admitted, charged: Micros, balance: Micros) -> Receipt {
    Receipt {
        call: admitted.call.call,
        charged,
        balance,
        balance_then: balance,
        rate: admitted.rate,
        replayed: false,
        simulated: false,
    }
}

/// A receipt of a call that cost nothing and was not made.
pub(crate) const fn simulated_receipt(call: CallId, rate: CreditsPerDollar) -> Receipt {
    Receipt {
        call,
        charged: Micros::ZERO,
        balance: Micros::ZERO,
        balance_then: Micros::ZERO,
        rate,
        replayed: false,
        simulated: true,
    }
}

/// Hands an answer to the handler; a client that went away finds it by its key or call id.
pub(crate) fn tell<T>(answer: oneshot::Sender<Result<T, AppError>>, result: Result<T, AppError>) {
    drop(answer.send(result));
}

/// What the caller is told about a provider's failure.
pub(crate) fn upstream_failure(error: &UpstreamError) -> AppError {
    match error {
        UpstreamError::Status {
            status: status @ (400 | 422),
            body,
            ..
        } => {
            let message =
                provider_message(body).unwrap_or_else(|| "the provider refused the request".to_owned());
            AppError::new(ErrorCode::ValidationError, message).with("upstreamStatus", *status)
        }
        UpstreamError::Status {
            status, retry_after, ..
        } => {
            let failure = AppError::new(
                ErrorCode::UpstreamError,
                "the provider failed; nothing was charged",
            )
            .with("upstreamStatus", *status);
            match retry_after {
                Some(wait) => failure.retry_after(wait.as_secs().max(1)),
                None => failure,
            }
        }
        UpstreamError::Timeout { .. } => AppError::new(
            ErrorCode::UpstreamTimeout,
            "the provider did not answer in time; nothing was charged",
        ),
        UpstreamError::NotSent { .. } => AppError::new(
            ErrorCode::UpstreamError,
            "the provider cannot be reached; nothing was charged",
        )
        .retry_after(1),
        UpstreamError::BadResponse { .. } | UpstreamError::Interrupted { .. } => AppError::new(
            ErrorCode::UpstreamError,
            "the provider's answer was unusable; nothing was charged",
        ),
    }
}

/// The provider's own words about a bad request, which the caller needs to mend it.
fn provider_message(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let message = body
        .get("error")
        .and_then(|error| error.get("message"))
        .or_else(|| body.get("message"))?
        .as_str()?;
    Some(message.chars().filter(|c| !c.is_control()).take(500).collect())
}

/// The stored form of a failure.
fn failure_document(error: &AppError) -> Bytes {
    let document = json!({
        "code": error.code.as_str(), "message": error.message, "members": error.members,
    });
    Bytes::from(document.to_string())
}

/// Reads the stored form of a failure.
pub(crate) fn stored_failure(document: &[u8]) -> AppError {
    let document: Value = serde_json::from_slice(document).unwrap_or_default();
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    let code = text("code")
        .and_then(ErrorCode::parse)
        .unwrap_or(ErrorCode::UpstreamError);
    let mut error = AppError::new(
        code,
        text("message").unwrap_or("the call failed; nothing was charged"),
    );
    if let Some(Value::Object(members)) = document.get("members") {
        error.members.clone_from(members);
    }
    error.replayed = true;
    error
}
