//! `turnpike export`: a workspace's books, events and audit log, streamed to standard output.

use std::process::ExitCode;

use serde_json::{Value, json};
use turnpike_app::audit::audit_view;
use turnpike_core::time::Timestamp;
use turnpike_store::Scan;

use super::{load, print};
use crate::cli::{ExportArgs, ExportFormat, ExportKind, Global};
use crate::service::{Access, SetupError, open_store};

/// The columns of an export, in order.
const LEDGER_COLUMNS: &[&str] = &[
    "sequence",
    "id",
    "createdAt",
    "type",
    "debit",
    "credit",
    "amountUsd",
    "callId",
    "reference",
    "attribution",
];
const USAGE_COLUMNS: &[&str] = &[
    "callId",
    "createdAt",
    "provider",
    "endpoint",
    "model",
    "externalUserId",
    "state",
    "chargedUsd",
    "refundedUsd",
    "marginUsd",
    "promptTokens",
    "completionTokens",
    "attribution",
];
const EVENT_COLUMNS: &[&str] = &["sequence", "id", "createdAt", "type", "data"];
const AUDIT_COLUMNS: &[&str] = &[
    "sequence", "id", "at", "actor", "action", "target", "before", "after", "origin", "hash",
];

pub(super) async fn export(global: &Global, args: &ExportArgs) -> Result<ExitCode, SetupError> {
    let config = load(global, false)?;
    let store = open_store(&config.store, &global.data, Access::Read, "turnpike export").await?;
    let columns = match args.what {
        ExportKind::Ledger => LEDGER_COLUMNS,
        ExportKind::Usage => USAGE_COLUMNS,
        ExportKind::Events => EVENT_COLUMNS,
        ExportKind::Audit => AUDIT_COLUMNS,
    };
    if args.format == ExportFormat::Csv {
        print(&columns.join(","))?;
    }
    let mut failure = None;
    let mut emit = |at: Timestamp, row: Value| {
        if args.from.is_some_and(|from| at < from) || args.to.is_some_and(|to| at >= to) {
            return true;
        }
        let line = match args.format {
            ExportFormat::Jsonl => row.to_string(),
            ExportFormat::Csv => columns
                .iter()
                .map(|name| csv(row.get(*name)))
                .collect::<Vec<_>>()
                .join(","),
        };
        failure = print(&line).err();
        failure.is_none()
    };
    let mut ledger = |t: turnpike_core::ledger::Transfer| {
        let row = json!({
            "sequence": t.seq.to_string(), "id": t.id, "createdAt": t.created_at, "type": t.cause,
            "debit": t.debit.to_string(), "credit": t.credit.to_string(), "amountUsd": t.amount, "callId": t.call,
            "reference": t.reference, "attribution": t.attribution,
        });
        emit(t.created_at, row)
    };
    match args.what {
        ExportKind::Ledger => store.scan(args.tenant, &mut Scan::Transfers(&mut ledger)).await?,
        ExportKind::Usage => {
            let mut usage = |hold: turnpike_core::ledger::Hold| {
                let tokens = hold.usage.unwrap_or_default();
                let row = json!({
                    "callId": hold.call.call, "createdAt": hold.created_at, "provider": hold.subject.provider,
                    "endpoint": hold.subject.endpoint, "model": hold.subject.model,
                    "externalUserId": hold.call.payer.external_user_id(), "state": hold.state,
                    "chargedUsd": hold.charged, "refundedUsd": hold.refunded, "marginUsd": hold.margin,
                    "promptTokens": tokens.prompt_tokens(), "completionTokens": tokens.completion_tokens(),
                    "attribution": hold.subject.attribution,
                });
                emit(hold.created_at, row)
            };
            store.scan(args.tenant, &mut Scan::Calls(&mut usage)).await?;
        }
        ExportKind::Events => {
            let mut events = |event: turnpike_store::EventRow| {
                let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
                let row = json!({
                    "sequence": event.seq.to_string(), "id": event.id, "createdAt": event.created_at,
                    "type": event.kind, "data": data,
                });
                emit(event.created_at, row)
            };
            store.scan(args.tenant, &mut Scan::Events(&mut events)).await?;
        }
        ExportKind::Audit => {
            let mut rows = |record: turnpike_store::AuditRecord| emit(record.at, audit_view(&record));
            store.scan(args.tenant, &mut Scan::Audit(&mut rows)).await?;
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// One CSV cell (RFC 4180). A cell that a spreadsheet would take for a formula is quoted with an apostrophe.
fn csv(value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let text = if text.starts_with(['=', '+', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}
