//! The commands of paid calls.

use super::apply::Step;
use super::command::Outcome;
use super::paid_call::{
    FailPaidCall, FinishPaidCall, LeaseSettlement, NewPaidCall, PaidCallRef, SettlementReport,
};
use super::rejection::Rejection;

pub(super) fn claim(_step: &mut Step<'_>, _new: &NewPaidCall) -> Result<Outcome, Rejection> {
    Err(Rejection::NotLoaded("paid call"))
}

pub(super) fn dispatch(_step: &mut Step<'_>, _call: &PaidCallRef) -> Result<Outcome, Rejection> {
    Err(Rejection::NotLoaded("paid call"))
}

pub(super) fn finish(_step: &mut Step<'_>, _finish: &FinishPaidCall) -> Result<Outcome, Rejection> {
    Err(Rejection::NotLoaded("paid call"))
}

pub(super) fn fail(_step: &mut Step<'_>, _fail: &FailPaidCall) -> Result<Outcome, Rejection> {
    Err(Rejection::NotLoaded("paid call"))
}

pub(super) fn abandon(_step: &mut Step<'_>, _call: &PaidCallRef) -> Result<Outcome, Rejection> {
    Err(Rejection::NotLoaded("paid call"))
}

pub(super) fn lease(_step: &mut Step<'_>, _lease: &LeaseSettlement) -> Result<Outcome, Rejection> {
    Err(Rejection::NotLoaded("paid call"))
}

pub(super) fn report(_step: &mut Step<'_>, _report: &SettlementReport) -> Result<Outcome, Rejection> {
    Err(Rejection::NotLoaded("paid call"))
}
