//! Calls that a wallet pays for by itself (specification 4.1 to 4.3; decisions, section 13).
//!
//! Validate, tell the terms, verify, claim, carry out, store the answer, settle, reply. The claim binds a payment to
//! one request, and the work behind it runs in a task of its own: a client that leaves cancels nothing and fetches the
//! answer by the request's id. From the stored answer on, the provider is never asked again.

mod answers;
mod check;
mod claim;
pub mod mpp;
mod offered;
mod operator;
mod prepare;
mod receipt;
mod recovery;
mod settings;
mod settlement;
mod terms;
#[cfg(test)]
mod tests;
mod work;

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::paid_call::{Operation, PaidCall, PaidCallState};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{Malformed, PaymentPayload};
use turnpike_upstream::Facilitator;

use self::check::Refused;
use self::mpp::{Challenge, Credential};
use self::offered::{taken, unreadable};
pub(crate) use self::operator::OperatorSettlements;
pub use self::prepare::{Assortment, LIST_MODELS_FEE};
use self::prepare::{Prepared, prepare};
pub use self::receipt::receipt_id;
pub use self::recovery::{PaidSweep, warn_of_strangers};
pub use self::settings::PaidCallSettings;
use self::terms::Offering;
pub use self::terms::Terms;
use crate::engine::Engine;
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
        // A known request needs no price (its answer outlives prices and models) and no verdict. Where a verdict costs
        // less than looking it up, it is looked up when it cannot be carried out as a new one.
        let mut claimed = None;
        let look_first = request.payment.is_none() || !self.parts.facilitator.verifies_here();
        if let Some(id) = id.filter(|_id| look_first) {
            let (known, claimed_for) = self.look_up(id, request.payment.as_ref()).await?;
            if let Some(call) = known {
                return self.known(call, &request).await;
            }
            claimed = claimed_for;
        }
        let prepared = prepare(
            &self.parts.shelf,
            &self.parts.settings.sold,
            request.operation,
            &request.raw,
        );
        let prepared = match (prepared, id) {
            (Err(error), Some(id)) if !look_first => {
                return match self.find(id).await? {
                    Some(call) => self.known(call, &request).await,
                    None => Err(error),
                };
            }
            (prepared, _) => prepared?,
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

    async fn find(&self, id: RequestId) -> Result<Option<(TenantId, PaidCall)>, AppError> {
        Ok(self.parts.engine.store.find_paid_call(id).await?)
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
        let id = id.unwrap_or_else(|| {
            let random = parts.engine.environment.random_32();
            RequestId::issued(self.now(), random.first_chunk().copied().unwrap_or_default())
        });
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
}
