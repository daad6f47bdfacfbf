//! How the values of the ledger stand in rows: column lists and the code that reads them.

use std::sync::Arc;

use turnpike_core::ids::{ApprovalId, CallId, ExternalUserId, QuoteId, TenantId, TokenId, TransferId};
use turnpike_core::ledger::account::SpendWindow;
use turnpike_core::ledger::books::LowBalance;
use turnpike_core::ledger::hold::{CallSubject, Claim, ClaimKey, LoopCount};
use turnpike_core::ledger::policy::{EndUser, OpenItems};
use turnpike_core::ledger::token::{EndUserToken, TokenKind};
use turnpike_core::ledger::{
    Account, AccountKey, AccountKind, AccountStatus, CallRef, Cause, Hold, HoldState, Payer, TenantHead,
    TenantStatus, Transfer,
};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::time::Timestamp;

use crate::error::StoreError;
use crate::sql::{Param, Row};

pub(crate) const TENANT_HEAD_COLUMNS: &str = "status, credits_per_dollar, transfer_seq, chain, event_seq, low_pool, low_end_user, audit_seq, audit_chain";
pub(crate) const ACCOUNT_COLUMNS: &str =
    "posted, held, status, day, day_spent, month, month_spent, freezes, open_calls";
pub(crate) const END_USER_COLUMNS: &str =
    "external_user_id, retired, policy, created_at, open_topups, open_refunds, open_disputes";
pub(crate) const END_USER_WIDTH: usize = 7;
pub(crate) const HOLD_COLUMNS: &str = "tenant_id, call_id, owner, amount, base, state, instance, day, month, \
     created_at, dispatched_at, deadline, finished_at, charged, margin, refunded, balance_after, loss, \
     usage, failure, claim_scope, claim_key, loop_id, \
     provider, endpoint, model, streamed, credential, attribution, price, token_id, quote_id, approval_id";
pub(crate) const TOKEN_COLUMNS: &str =
    "owner, created_at, expires_at, revoked_at, max_spend, spent, tools, kind, max_per_call";
/// How many they are.
pub(crate) const TOKEN_WIDTH: usize = 9;
pub(crate) const TRANSFER_COLUMNS: &str = "tenant_id, seq, id, debit_kind, debit_owner, credit_kind, credit_owner, \
     amount, cause, call_id, reference, attribution, debit_after, credit_after, created_at, hash";

fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(what.to_owned())
}

pub(crate) fn micros(row: &Row, index: usize) -> Result<Micros, StoreError> {
    row.int(index).map(Micros::new)
}

pub(crate) fn instant(row: &Row, index: usize) -> Result<Timestamp, StoreError> {
    row.int(index).map(Timestamp::from_millis)
}

pub(crate) fn opt_instant(row: &Row, index: usize) -> Result<Option<Timestamp>, StoreError> {
    Ok(row.opt_int(index)?.map(Timestamp::from_millis))
}

fn opt_arc(row: &Row, index: usize) -> Result<Option<Arc<str>>, StoreError> {
    Ok(row.opt_text(index)?.map(Arc::from))
}

pub(crate) fn external_id(text: &str) -> Result<ExternalUserId, StoreError> {
    ExternalUserId::parse(text).map_err(|_invalid| corrupt("end-user id"))
}

pub(crate) fn payer(owner: &str) -> Result<Payer, StoreError> {
    if owner.is_empty() {
        Ok(Payer::Pool)
    } else {
        external_id(owner).map(Payer::EndUser)
    }
}

pub(crate) fn account_key(tenant: TenantId, kind: i16, owner: &str) -> Result<AccountKey, StoreError> {
    let kind = AccountKind::from_code(kind).ok_or_else(|| corrupt("account kind"))?;
    let owner = if owner.is_empty() {
        None
    } else {
        Some(external_id(owner)?)
    };
    Ok(AccountKey { tenant, kind, owner })
}

/// Reads [`TENANT_HEAD_COLUMNS`] from column `at` on.
pub(crate) fn tenant_head(row: &Row, at: usize) -> Result<TenantHead, StoreError> {
    Ok(TenantHead {
        status: TenantStatus::from_code(row.small(at)?).ok_or_else(|| corrupt("tenant status"))?,
        credits_per_dollar: CreditsPerDollar::try_from(row.int(at + 1)?).map_err(corrupt)?,
        transfer_seq: row.int(at + 2)?,
        chain: row.hash(at + 3)?,
        event_seq: row.int(at + 4)?,
        low_balance: LowBalance {
            pool: row.opt_int(at + 5)?.map(Micros::new),
            end_user: row.opt_int(at + 6)?.map(Micros::new),
        },
        audit_seq: row.int(at + 7)?,
        audit_chain: row.hash(at + 8)?,
    })
}

/// Reads [`ACCOUNT_COLUMNS`] from column `at` on.
pub(crate) fn account(row: &Row, at: usize) -> Result<Account, StoreError> {
    Ok(Account {
        posted: micros(row, at)?,
        held: micros(row, at + 1)?,
        status: AccountStatus::from_code(row.small(at + 2)?).ok_or_else(|| corrupt("account status"))?,
        day: SpendWindow {
            index: row.int(at + 3)?,
            spent: micros(row, at + 4)?,
        },
        month: SpendWindow {
            index: row.int(at + 5)?,
            spent: micros(row, at + 6)?,
        },
        freezes: row.int(at + 7)?,
        open_calls: row.int(at + 8)?,
    })
}

/// Reads [`END_USER_COLUMNS`] from column `at` on.
pub(crate) fn end_user(row: &Row, at: usize) -> Result<EndUser, StoreError> {
    Ok(EndUser {
        id: external_id(row.text(at)?)?,
        retired: row.int(at + 1)? != 0,
        policy: Arc::new(
            serde_json::from_str(row.text(at + 2)?).map_err(|error| corrupt(&error.to_string()))?,
        ),
        created_at: instant(row, at + 3)?,
        open: OpenItems {
            topups: row.int(at + 4)?,
            refunds: row.int(at + 5)?,
            disputes: row.int(at + 6)?,
        },
    })
}

/// Reads a JSON document from column `at`.
pub(crate) fn document<T: serde::de::DeserializeOwned>(row: &Row, at: usize) -> Result<T, StoreError> {
    serde_json::from_str(row.text(at)?).map_err(|error| corrupt(&error.to_string()))
}

/// Reads [`TOKEN_COLUMNS`] from column `at` on.
pub(crate) fn token(row: &Row, at: usize) -> Result<EndUserToken, StoreError> {
    let tools = row.opt_text(at + 6)?.map(serde_json::from_str::<Vec<String>>);
    Ok(EndUserToken {
        kind: TokenKind::from_code(row.small(at + 7)?).ok_or_else(|| corrupt("token kind"))?,
        owner: payer(row.text(at)?)?,
        created_at: instant(row, at + 1)?,
        expires_at: instant(row, at + 2)?,
        revoked_at: opt_instant(row, at + 3)?,
        max_spend: row.opt_int(at + 4)?.map(Micros::new),
        max_per_call: row.opt_int(at + 8)?.map(Micros::new),
        spent: micros(row, at + 5)?,
        tools: tools
            .transpose()
            .map_err(|error| corrupt(&error.to_string()))?
            .map(Arc::from),
    })
}

/// Reads [`HOLD_COLUMNS`].
pub(crate) fn hold(row: &Row) -> Result<(TenantId, Hold), StoreError> {
    let tenant = TenantId(row.uuid(0)?);
    let claim = match (opt_arc(row, 20)?, opt_arc(row, 21)?) {
        (Some(scope), Some(key)) => Some(ClaimKey { tenant, scope, key }),
        _ => None,
    };
    let usage = row.opt_text(18)?.map(serde_json::from_str).transpose();
    Ok((
        tenant,
        Hold {
            call: CallRef {
                call: CallId(row.uuid(1)?),
                payer: payer(row.text(2)?)?,
                claim,
                loop_id: opt_arc(row, 22)?,
                token: row.opt_uuid(30)?.map(TokenId),
                quote: row.opt_uuid(31)?.map(QuoteId),
                approval: row.opt_uuid(32)?.map(ApprovalId),
            },
            amount: micros(row, 3)?,
            base: micros(row, 4)?,
            state: HoldState::from_code(row.small(5)?).ok_or_else(|| corrupt("hold state"))?,
            instance: row.uuid(6)?,
            windows: (row.int(7)?, row.int(8)?),
            created_at: instant(row, 9)?,
            dispatched_at: opt_instant(row, 10)?,
            deadline: instant(row, 11)?,
            finished_at: opt_instant(row, 12)?,
            charged: micros(row, 13)?,
            margin: micros(row, 14)?,
            refunded: micros(row, 15)?,
            balance_after: row.opt_int(16)?.map(Micros::new),
            loss: micros(row, 17)?,
            usage: usage.map_err(|error| corrupt(&error.to_string()))?,
            failure: opt_arc(row, 19)?,
            subject: CallSubject {
                provider: row.text(23)?.into(),
                endpoint: row.text(24)?.into(),
                model: opt_arc(row, 25)?,
                streamed: row.int(26)? != 0,
                credential: row.text(27)?.into(),
                attribution: opt_arc(row, 28)?,
                price: row.text(29)?.into(),
            },
        },
    ))
}

/// Reads [`TRANSFER_COLUMNS`].
pub(crate) fn transfer(row: &Row) -> Result<Transfer, StoreError> {
    let tenant = TenantId(row.uuid(0)?);
    Ok(Transfer {
        seq: row.int(1)?,
        id: TransferId(row.uuid(2)?),
        debit: account_key(tenant, row.small(3)?, row.text(4)?)?,
        credit: account_key(tenant, row.small(5)?, row.text(6)?)?,
        amount: micros(row, 7)?,
        cause: Cause::from_code(row.small(8)?).ok_or_else(|| corrupt("cause"))?,
        call: row.opt_uuid(9)?.map(CallId),
        reference: row.text(10)?.into(),
        attribution: opt_arc(row, 11)?,
        debit_after: micros(row, 12)?,
        credit_after: micros(row, 13)?,
        created_at: instant(row, 14)?,
        hash: row.hash(15)?,
    })
}

/// Reads `fingerprint, subject` from column `at` on.
pub(crate) fn claim(row: &Row, at: usize) -> Result<Claim, StoreError> {
    Ok(Claim {
        fingerprint: row.hash(at)?,
        subject: row.uuid(at + 1)?,
    })
}

/// Reads `calls, spent` from column `at` on.
pub(crate) fn loop_count(row: &Row, at: usize) -> Result<LoopCount, StoreError> {
    let calls = u64::try_from(row.int(at)?).map_err(|_negative| corrupt("loop calls"))?;
    Ok(LoopCount {
        calls,
        spent: micros(row, at + 1)?,
    })
}

/// Starts a parameter list with bucket and tenant, as every key does.
pub(crate) fn tenant_params(tenant: TenantId) -> Vec<Param> {
    vec![Param::from(tenant.bucket()), Param::from(tenant.0)]
}
