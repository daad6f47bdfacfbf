//! What a request pays with: which request it names, whether it stands for another one, whether a facilitator may be
//! asked about it.

use std::borrow::Cow;

use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::paid_call::{Operation, PaidBy, PaidCall};
use turnpike_core::x402::{Authorization, Malformed, X402_VERSION};
use turnpike_upstream::SignedPayment;

use super::check::Refused;
use super::mpp::Credential;
use super::prepare::Prepared;
use super::{Offered, PaidCallDesk, PaidRequest};
use crate::error::AppError;

/// A payment that can be put to a facilitator.
pub(super) struct Acceptable {
    pub(super) by: PaidBy,
    pub(super) signed: SignedPayment,
}

impl PaidCallDesk {
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

    /// Refuses a payment that stands for another request than `id`.
    pub(super) async fn check_unclaimed(&self, key: &str, id: Option<RequestId>) -> Result<(), AppError> {
        let parts = &self.parts;
        let claimed = parts.engine.store.find_claimed_payment(parts.house, key).await?;
        if claimed.is_some() && claimed != id {
            return Err(taken());
        }
        Ok(())
    }

    /// The paid call of a request, and the request that its payment was claimed for.
    pub(super) async fn look_up(
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
    pub(super) fn key_of(&self, offered: &Offered) -> Result<String, Malformed> {
        let authorization = match offered {
            Offered::X402(payment) => Authorization::read(payment),
            Offered::Mpp(credential) => match &**credential {
                Ok(credential) => Authorization::read(&self.parts.settings.as_x402(&credential.payload)),
                Err(unreadable) => Err(unreadable.clone()),
            },
        };
        authorization.map(|authorization| authorization.key())
    }

    /// Whether a payment can be put to the facilitator.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` for what is no payment; inside, why it is not accepted.
    pub(super) fn acceptable(
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
                (PaidBy::X402, Cow::Borrowed(&**payment))
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
                    Ok(payment) => (PaidBy::Mpp, Cow::Owned(payment)),
                    Err(refused) => return Ok(Err(refused)),
                }
            }
        };
        let authorization = Authorization::read(&payment).map_err(|error| malformed(&error))?;
        let accepted = &payment.accepted;
        let facilitator = accepted
            .extra
            .get("facilitatorAddress")
            .and_then(serde_json::Value::as_str);
        let longest_ms = prepared.work.longest_ms();
        let checked =
            settings.check_authorization(&authorization, &accepted.amount, facilitator, longest_ms, now);
        Ok(checked.map(|()| {
            let payload = settings.forwarded(&payment);
            debug_assert_eq!(Authorization::read(&payload).as_ref(), Ok(&authorization));
            let signed = SignedPayment {
                requirements: payload.accepted.clone(),
                payload,
                authorization,
            };
            Acceptable { by, signed }
        }))
    }
}

pub(super) fn taken() -> AppError {
    AppError::new(
        ErrorCode::RequestIdConflict,
        "this payment stands for another request",
    )
}

pub(super) fn unreadable(credential: &Result<Credential, Malformed>) -> Refused {
    let what = credential.as_ref().err().map(ToString::to_string);
    Refused::new("malformed-credential", what.unwrap_or_default())
}

pub(super) fn malformed(error: &Malformed) -> AppError {
    AppError::invalid("payment", format!("is no payment: {error}"))
}
