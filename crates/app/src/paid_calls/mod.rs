//! Calls that a wallet pays for by itself (specification 4.1 to 4.3; decisions, section 13).
//!
//! Validate, tell the terms, verify, claim, carry out, store the answer, settle, reply. The claim binds a payment to
//! one request, and the work behind it runs in a task of its own: a client that leaves cancels nothing and fetches the
//! answer by the request's id. From the stored answer on, the provider is never asked again.

pub mod mpp;
mod prepare;
mod receipt;
mod recovery;
mod settlement;
mod terms;
#[cfg(test)]
mod tests;
mod work;

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::paid_call::{
    ANSWER_KEPT_MS, NewPaidCall, Operation, PaidBy, PaidCall, PaidCallState, Payment,
};
use turnpike_core::ledger::{Action, Outcome};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{Authorization, Malformed, PaymentPayload, X402_VERSION};
use turnpike_upstream::{Facilitator, SignedPayment, Verdict};

use self::mpp::{Challenge, Credential};
pub use self::prepare::{Assortment, LIST_MODELS_FEE};
use self::prepare::{Prepared, body_hash, prepare};
pub use self::receipt::receipt_id;
pub use self::recovery::{PaidSweep, warn_of_strangers};
use self::terms::{Offering, Refused};
pub use self::terms::{PaidCallSettings, Terms};
use crate::engine::{Engine, LiveGuard, tell};
use crate::error::AppError;
use crate::providers::Shelf;

/// The reason of a facilitator whose payer has not approved Permit2.
const ALLOWANCE: &str = "permit2_allowance_required";

/// The use cases of paid calls. Cheap to clone.
#[derive(Clone)]
pub struct PaidCallDesk {
    parts: Arc<Parts>,
}

struct Parts {
    engine: Arc<Engine>,
    shelf: Arc<Shelf>,
    facilitator: Arc<dyn Facilitator>,
    settings: PaidCallSettings,
    house: TenantId,
    offering: RwLock<Option<Arc<Offering>>>,
}

/// A request to an operation.
#[derive(Debug)]
pub struct PaidRequest {
    /// Which.
    pub operation: Operation,
    /// Its body.
    pub raw: Bytes,
    /// The id that its header names.
    pub id: Option<RequestId>,
    /// What it pays with.
    pub payment: Option<Offered>,
}

/// What a request pays with.
#[derive(Debug)]
pub enum Offered {
    /// x402.
    X402(Box<PaymentPayload>),
    /// The machine payments protocol; a credential that cannot be read is answered like one that was refused.
    Mpp(Box<Result<Credential, Malformed>>),
}

/// What a request is answered.
#[derive(Debug)]
pub enum PaidReply {
    /// It is not paid, or not in a way that can be accepted.
    Unpaid(Box<Unpaid>),
    /// It is being worked on.
    InProgress {
        /// The request.
        id: RequestId,
        /// How far it is.
        state: PaidCallState,
    },
    /// It is paid.
    Answered {
        /// The call.
        call: Box<PaidCall>,
        /// The answer.
        body: Bytes,
    },
    /// The work was done and the settlement was refused: the answer is held back.
    Withheld(Box<PaidCall>),
}

/// The answer to a request that is not paid.
#[derive(Debug)]
pub struct Unpaid {
    /// The terms.
    pub terms: Terms,
    /// The same for the other protocol, where it is spoken.
    pub challenge: Option<Challenge>,
    /// The last part of the problem's type.
    pub problem: &'static str,
    /// For people.
    pub detail: String,
    /// Whether the payer has to approve Permit2 first.
    pub allowance_missing: bool,
}

/// A payment that can be put to a facilitator.
struct Acceptable {
    by: PaidBy,
    authorization: Authorization,
    signed: SignedPayment,
}

impl Parts {
    fn known_offering(&self) -> Option<Arc<Offering>> {
        let offering = self.offering.read();
        offering.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PaidCallDesk {
    /// A desk that sells what is on `shelf` and is paid through `facilitator`.
    pub fn new(
        engine: Arc<Engine>,
        shelf: Arc<Shelf>,
        facilitator: Arc<dyn Facilitator>,
        settings: PaidCallSettings,
    ) -> Self {
        let parts = Parts {
            engine,
            shelf,
            facilitator,
            house: settings.house(),
            settings,
            offering: RwLock::default(),
        };
        Self {
            parts: Arc::new(parts),
        }
    }

    /// Whether no money moves.
    pub fn is_simulated(&self) -> bool {
        self.parts.facilitator.is_simulated()
    }

    /// Where and how calls are paid for.
    pub fn settings(&self) -> &PaidCallSettings {
        &self.parts.settings
    }

    /// Makes the house tenant, and asks the facilitator what it can do.
    ///
    /// # Errors
    /// When the store or the facilitator cannot be asked.
    pub async fn refresh(&self) -> Result<(), AppError> {
        let parts = &self.parts;
        if parts.known_offering().is_none() {
            let name = parts.settings.house_name();
            let now = parts.engine.environment.now();
            let store = &parts.engine.store;
            store.ensure_house_tenant(parts.house, &name, now).await?;
        }
        let supported = parts.facilitator.supported().await.map_err(|error| {
            tracing::warn!(%error, "the facilitator does not say what it can do");
            AppError::unavailable()
        })?;
        let offering = Offering::of(&supported, &parts.settings.network);
        *parts.offering.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(offering));
        Ok(())
    }

    /// Whether it is known what the facilitator can do.
    pub fn is_ready(&self) -> bool {
        self.parts.known_offering().is_some()
    }

    fn now(&self) -> Timestamp {
        self.parts.engine.environment.now()
    }

    /// A request to one of the operations.
    ///
    /// # Errors
    /// 400 codes of the body and of what cannot be read of a payment; `REQUEST_ID_CONFLICT`, `REQUEST_FAILED`,
    /// `RESULT_EXPIRED`, `RATE_LIMITED` when the wallet has too much open, 502 and 503.
    pub async fn call(&self, request: PaidRequest) -> Result<PaidReply, AppError> {
        let id = self.request_id(&request)?;
        // A known request needs no price: its answer outlives prices and models. A verification inside the process costs
        // less than the look-up, and the claim finds out as well: there the look-up is for payments that are refused.
        let late = request.payment.is_some() && self.is_simulated();
        let mut claimed = None;
        if let Some(id) = id.filter(|_id| !late) {
            let (known, claimed_for) = self.look_up(id, request.payment.as_ref()).await?;
            if let Some(call) = known {
                return self.known(call, &request).await;
            }
            claimed = claimed_for;
        }
        let prepared = match self.prepared(&request) {
            Ok(prepared) => prepared,
            Err(error) => {
                return match id.filter(|_id| late) {
                    Some(id) => self.known_or(id, &request, error).await,
                    None => Err(error),
                };
            }
        };
        let Some(offered) = &request.payment else {
            return self.unpaid(&prepared, &request, id, None);
        };
        let Some(id) = id else {
            let refused = match offered {
                Offered::Mpp(credential) if credential.is_err() => unreadable(credential),
                // Who names no request was told none: the terms are not ours.
                Offered::X402(_) | Offered::Mpp(_) => {
                    Refused::new("invalid_payment_requirements", "the payment names no request")
                }
            };
            return self.refused(&prepared, &request, None, refused).await;
        };
        match self.acceptable(&prepared, id, offered, &request.raw)? {
            Ok(_) if claimed.is_some_and(|other| other != id) => Err(taken()),
            Ok(payment) => self.verify_and_claim(id, prepared, request, payment).await,
            Err(refused) => self.refused(&prepared, &request, Some(id), refused).await,
        }
    }

    fn prepared(&self, request: &PaidRequest) -> Result<Prepared, AppError> {
        let parts = &self.parts;
        prepare(
            &parts.shelf,
            &parts.settings.sold,
            request.operation,
            &request.raw,
        )
    }

    /// What is said of a request that cannot be carried out: its answer, if it has one.
    async fn known_or(
        &self,
        id: RequestId,
        request: &PaidRequest,
        error: AppError,
    ) -> Result<PaidReply, AppError> {
        match self.find(id).await? {
            Some(call) => self.known(call, request).await,
            None => Err(error),
        }
    }

    /// What is said of a payment that is not accepted. One that was claimed, meanwhile or for another request, is never
    /// answered with fresh terms: whoever pays on these pays twice.
    async fn refused(
        &self,
        prepared: &Prepared,
        request: &PaidRequest,
        id: Option<RequestId>,
        refused: Refused,
    ) -> Result<PaidReply, AppError> {
        if let Some(id) = id
            && let Some(call) = self.find(id).await?
        {
            return self.known(call, request).await;
        }
        if let Some(Ok(key)) = request.payment.as_ref().map(|offered| self.key_of(offered)) {
            self.check_unclaimed(&key, id).await?;
        }
        self.unpaid(prepared, request, id, Some(refused))
    }

    /// Refuses a payment that stands for another request than `id`.
    async fn check_unclaimed(&self, key: &str, id: Option<RequestId>) -> Result<(), AppError> {
        let parts = &self.parts;
        let claimed = parts.engine.store.find_claimed_payment(parts.house, key).await?;
        if claimed.is_some() && claimed != id {
            return Err(taken());
        }
        Ok(())
    }

    /// The paid call of a request, and the request that its payment was claimed for.
    async fn look_up(
        &self,
        id: RequestId,
        offered: Option<&Offered>,
    ) -> Result<(Option<(TenantId, PaidCall)>, Option<RequestId>), AppError> {
        let parts = &self.parts;
        match offered.map(|offered| self.key_of(offered)) {
            Some(Ok(key)) => {
                let store = &parts.engine.store;
                Ok(store.find_paid_call_and_claim(id, parts.house, &key).await?)
            }
            Some(Err(_)) | None => Ok((self.find(id).await?, None)),
        }
    }

    /// What no two paid calls share of what is offered.
    fn key_of(&self, offered: &Offered) -> Result<String, Malformed> {
        let authorization = match offered {
            Offered::X402(payment) => Authorization::read(payment),
            Offered::Mpp(credential) => match &**credential {
                Ok(credential) => Authorization::read(&self.parts.settings.as_x402(&credential.payload)),
                Err(unreadable) => Err(unreadable.clone()),
            },
        };
        authorization.map(|authorization| authorization.key())
    }

    async fn find(&self, id: RequestId) -> Result<Option<(TenantId, PaidCall)>, AppError> {
        Ok(self.parts.engine.store.find_paid_call(id).await?)
    }

    /// The id that the request names, in its header and in its payment.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` when it is no UUID, `REQUEST_ID_CONFLICT` when they differ.
    pub fn request_id(&self, request: &PaidRequest) -> Result<Option<RequestId>, AppError> {
        let [first, second] = match &request.payment {
            None => [None, None],
            Some(Offered::X402(payment)) => self
                .parts
                .settings
                .ids_in(payment)
                .map_err(|error| malformed(&error))?,
            Some(Offered::Mpp(credential)) => match &**credential {
                Ok(credential) => [Some(credential.id().map_err(|error| malformed(&error))?), None],
                Err(_unreadable) => [None, None],
            },
        };
        let mut named = [request.id, first, second].into_iter().flatten();
        let id = named.next();
        if named.any(|other| Some(other) != id) {
            let message = "the header, the terms and the extension name different request ids";
            return Err(AppError::new(ErrorCode::RequestIdConflict, message));
        }
        Ok(id)
    }

    /// What is said of a request that is not paid.
    fn unpaid(
        &self,
        prepared: &Prepared,
        request: &PaidRequest,
        id: Option<RequestId>,
        refused: Option<Refused>,
    ) -> Result<PaidReply, AppError> {
        let parts = &self.parts;
        let id = id.unwrap_or_else(|| RequestId(random_id(parts.engine.environment.random_32())));
        let offering = parts
            .known_offering()
            .ok_or_else(|| AppError::unavailable().retry_after(1))?;
        let reason = refused.as_ref().map(|refused| refused.reason.clone());
        let allowance_missing = reason.as_deref() == Some(ALLOWANCE);
        let terms = parts
            .settings
            .terms(prepared, &offering, id, reason.clone(), self.now())?;
        let by_mpp = request.operation == Operation::ListModels;
        let challenge = by_mpp.then(|| parts.settings.challenge(&terms, &request.raw));
        let problem = match reason.as_deref() {
            None => "payment-required",
            Some("malformed-credential") => "malformed-credential",
            Some("invalid-challenge") => "invalid-challenge",
            Some("invalid-payload") => "invalid-payload",
            Some("payment_terms_expired") => "payment-expired",
            Some(_) => "verification-failed",
        };
        Ok(PaidReply::Unpaid(Box::new(Unpaid {
            terms,
            challenge,
            problem,
            detail: refused.map_or_else(
                || "pay on these terms and send the same request again".to_owned(),
                |refused| refused.detail,
            ),
            allowance_missing,
        })))
    }

    /// Whether a payment can be put to the facilitator.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` for what is no payment; inside, why it is not accepted.
    fn acceptable(
        &self,
        prepared: &Prepared,
        id: RequestId,
        offered: &Offered,
        raw: &[u8],
    ) -> Result<Result<Acceptable, Refused>, AppError> {
        let settings = &self.parts.settings;
        let now = self.now();
        let (by, payment) = match offered {
            Offered::X402(payment) => {
                if payment.x402_version != X402_VERSION {
                    return Err(malformed(&Malformed(format!(
                        "x402Version must be {X402_VERSION}"
                    ))));
                }
                if let Err(refused) = settings.check_terms(prepared, id, &payment.accepted, now) {
                    return Ok(Err(refused));
                }
                (PaidBy::X402, (**payment).clone())
            }
            Offered::Mpp(credential) => {
                let accepted = match &**credential {
                    _ if prepared.subject.operation != Operation::ListModels => Err(Refused::new(
                        "method-unsupported",
                        "this operation is paid by x402 alone",
                    )),
                    Ok(credential) => settings.accept_credential(credential, raw, now),
                    Err(_unreadable) => Err(unreadable(credential)),
                };
                match accepted {
                    Ok(payment) => (PaidBy::Mpp, payment),
                    Err(refused) => return Ok(Err(refused)),
                }
            }
        };
        let authorization = Authorization::read(&payment).map_err(|error| malformed(&error))?;
        let payment = settings.forwarded(&payment);
        let accepted = &payment.accepted;
        let facilitator = accepted
            .extra
            .get("facilitatorAddress")
            .and_then(serde_json::Value::as_str);
        let longest_ms = prepared.work.longest_ms();
        let checked =
            settings.check_authorization(&authorization, &accepted.amount, facilitator, longest_ms, now);
        let signed = SignedPayment {
            requirements: payment.accepted.clone(),
            payload: payment,
        };
        Ok(checked.map(|()| Acceptable {
            by,
            authorization,
            signed,
        }))
    }

    async fn verify_and_claim(
        &self,
        id: RequestId,
        prepared: Prepared,
        request: PaidRequest,
        payment: Acceptable,
    ) -> Result<PaidReply, AppError> {
        let parts = &self.parts;
        let key = payment.authorization.key();
        let verdict = parts.facilitator.verify(&payment.signed).await;
        fail::fail_point!("paid-after-verify");
        match verdict {
            Verdict::Valid => {}
            Verdict::Invalid { reason, message } => {
                let detail = message.unwrap_or_else(|| "the payment was refused".to_owned());
                let refused = Refused::new(reason, detail);
                return self.refused(&prepared, &request, Some(id), refused).await;
            }
            Verdict::Unknown(detail) => {
                tracing::warn!(detail, "the facilitator gave no verdict on a payment");
                let message =
                    "the facilitator gave no verdict; nothing was taken: send the same request again";
                return Err(AppError::new(ErrorCode::UpstreamError, message).retry_after(1));
            }
        }
        let agreed = ledger_amount(&payment.authorization)?;
        let prepared = prepared.at_most(agreed);
        let new = self.new_call(id, &prepared, payment, key)?;
        let desk = self.clone();
        // Whoever leaves now leaves a claim with somebody who works on it.
        let task = |answer| async move {
            let result = desk.claim(new, prepared, &request).await;
            tell(answer, result);
        };
        parts.engine.detach(task).await
    }

    async fn claim(
        &self,
        new: NewPaidCall,
        prepared: Prepared,
        request: &PaidRequest,
    ) -> Result<PaidReply, AppError> {
        let parts = &self.parts;
        // Registered before the row exists, so that no sweep can find it unregistered.
        let _live = LiveGuard::new(&parts.engine, work::call_id(new.id));
        let claim = Action::ClaimPaidCall(Box::new(new));
        let claimed = parts.engine.submit(parts.house, claim).await;
        fail::fail_point!("paid-after-claim");
        match claimed {
            Ok(Outcome::PaidCall { call, changed: true }) => Box::pin(self.carry_out(*call, prepared)).await,
            Ok(Outcome::PaidCall { call, changed: false }) => self.known((parts.house, *call), request).await,
            Ok(_) => Err(AppError::internal(&"a claim was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, CreditsPerDollar::default())),
        }
    }

    fn new_call(
        &self,
        id: RequestId,
        prepared: &Prepared,
        payment: Acceptable,
        key: String,
    ) -> Result<NewPaidCall, AppError> {
        let parts = &self.parts;
        let settings = &parts.settings;
        let signed =
            serde_json::to_string(&payment.signed.payload).map_err(|error| AppError::internal(&error))?;
        let authorization = payment.authorization;
        let lifetime = prepared
            .work
            .longest_ms()
            .saturating_add(parts.engine.settings.hold_slack_ms);
        Ok(NewPaidCall {
            id,
            subject: prepared.subject.clone(),
            payment: Payment {
                by: payment.by,
                key: key.into(),
                payer: authorization.payer,
                network: settings.network.clone(),
                asset: settings.asset.clone(),
                pay_to: settings.pay_to.clone(),
                max: ledger_amount(&authorization)?,
                simulated: settings.simulated,
                valid_before: Timestamp::from_millis(authorization.valid_before.saturating_mul(1000)),
                signed: Some(signed.into()),
            },
            instance: parts.engine.settings.instance,
            due_at: self.now().plus_millis(lifetime),
            cap: settings.cap,
        })
    }

    /// A request whose id is known: never a fresh 402, never a second settlement, never a second call.
    async fn known(
        &self,
        (tenant, call): (TenantId, PaidCall),
        request: &PaidRequest,
    ) -> Result<PaidReply, AppError> {
        let subject = &call.subject;
        let key = request
            .payment
            .as_ref()
            .map(|offered| self.key_of(offered))
            .transpose();
        let key = key.map_err(|error| malformed(&error))?;
        let same = subject.operation == request.operation
            && subject.body_hash == body_hash(request.operation, &request.raw)
            && key.is_none_or(|key| *key == *call.payment.key);
        if !same {
            return Err(AppError::new(
                ErrorCode::RequestIdConflict,
                "this request id stands for another request",
            ));
        }
        if tenant == self.parts.house && settlement::may_try_again(&call, self.now()) {
            return self.settle_again(tenant, call).await;
        }
        self.reply(tenant, call, None).await
    }

    /// The answer to a paid call as it is now. `body` spares reading the stored one.
    async fn reply(
        &self,
        tenant: TenantId,
        call: PaidCall,
        body: Option<Bytes>,
    ) -> Result<PaidReply, AppError> {
        match call.state {
            PaidCallState::Claimed | PaidCallState::Dispatched | PaidCallState::Settling => {
                Ok(PaidReply::InProgress {
                    id: call.id,
                    state: call.state,
                })
            }
            PaidCallState::Refused if self.now() < call.payment.valid_before => {
                Ok(PaidReply::Withheld(Box::new(call)))
            }
            // Past its deadline the chain says how it ended, and until then nobody does.
            PaidCallState::Refused => Ok(PaidReply::InProgress {
                id: call.id,
                state: call.state,
            }),
            PaidCallState::Failed => Err(receipt::failed(&call)),
            PaidCallState::Settled => {
                let body = match body {
                    Some(body) => Some(body),
                    None => self.stored_body(tenant, &call).await?,
                };
                match body {
                    Some(body) => Ok(PaidReply::Answered {
                        call: Box::new(call),
                        body,
                    }),
                    None => Err(receipt::expired(&call)),
                }
            }
        }
    }

    /// The stored answer, for as long as it is kept from the call's end on.
    async fn stored_body(&self, tenant: TenantId, call: &PaidCall) -> Result<Option<Bytes>, AppError> {
        let engine = &self.parts.engine;
        let kept_ms = engine.settings.outcome_retention_ms.max(ANSWER_KEPT_MS);
        if call
            .ended_at
            .is_some_and(|end| end.plus_millis(kept_ms) <= self.now())
        {
            return Ok(None);
        }
        let outcome = engine.store.find_outcome(tenant, work::call_id(call.id)).await?;
        Ok(outcome.and_then(|outcome| outcome.body))
    }
}

fn taken() -> AppError {
    AppError::new(
        ErrorCode::RequestIdConflict,
        "this payment stands for another request",
    )
}

fn unreadable(credential: &Result<Credential, Malformed>) -> Refused {
    let what = credential.as_ref().err().map(ToString::to_string);
    Refused::new("malformed-credential", what.unwrap_or_default())
}

/// What is authorised, as the ledger counts it.
fn ledger_amount(authorization: &Authorization) -> Result<Micros, AppError> {
    i64::try_from(authorization.value)
        .map(Micros::new)
        .map_err(|_overflow| AppError::internal(&"an amount beyond the ledger was accepted"))
}

fn malformed(error: &Malformed) -> AppError {
    AppError::invalid("payment", format!("is no payment: {error}"))
}

/// A UUIDv4 of 16 random bytes.
fn random_id(random: [u8; 32]) -> uuid::Uuid {
    let [bytes, _] = split(random);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

fn split(random: [u8; 32]) -> [[u8; 16]; 2] {
    let mut halves = [[0; 16]; 2];
    for (to, from) in halves.iter_mut().flatten().zip(random) {
        *to = from;
    }
    halves
}
