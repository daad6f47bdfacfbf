//! The audit log: numbered without gaps and chained, whoever appends.

use std::sync::Arc;

use futures_util::future::join_all;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::Payer;
use turnpike_core::ledger::TenantStatus;
use turnpike_store::{AuditFilter, AuditRecord, Store};

use crate::actions::{audit_row, command, grant};
use crate::money_in::note;
use crate::world::{Kind, World};

async fn log(store: &dyn Store, tenant: TenantId) -> Vec<AuditRecord> {
    let filter = AuditFilter {
        limit: 10_000,
        ..AuditFilter::default()
    };
    store.list_audit(tenant, &filter).await.unwrap()
}

/// Commands with a note and changes of the directory, all at once, through two services where there can be two.
pub(crate) async fn whoever_appends_continues_the_chain(world: &World) {
    let tenant = world.tenant().await;
    let other = world
        .second()
        .await
        .unwrap_or_else(|_one_only| world.store.clone());
    let stores = [world.store.clone(), other.clone()];
    let changes = (0..60).map(|at| {
        let store: Arc<dyn Store> = stores[at % 2].clone();
        async move {
            if at % 3 == 0 {
                let mut command = command(tenant, grant(&Payer::Pool, 1));
                command.note = Some(note("grant"));
                drop(store.submit(command).await.unwrap());
            } else {
                let mut row = audit_row(tenant);
                row.after = (at % 2 == 0).then(|| at.to_string());
                let status = TenantStatus::Active;
                assert!(store.set_tenant_status(tenant, status, &row).await.unwrap());
            }
        }
    });
    join_all(changes).await;
    let rows = log(&*other, tenant).await;
    // The first is the workspace's own beginning.
    let seqs: Vec<i64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(seqs, (1..=61).rev().collect::<Vec<i64>>());
    let mut previous = [0; 32];
    for row in rows.iter().rev() {
        previous = row.line(tenant).chained(&previous);
        assert_eq!(row.hash, previous, "{}", row.seq);
    }
    let report = world.store.audit(tenant, &|_read| {}).await.unwrap();
    assert_eq!((report.counts.audit_rows, report.findings), (61, vec![]));
    if !Arc::ptr_eq(&world.store, &other) {
        other.close().await;
    }
}

pub(crate) async fn the_log_is_paged_and_filtered(world: &World) {
    let tenant = world.tenant().await;
    for action in ["key.create", "pricing.global", "key.revoke", "pricing_x", "keyx"] {
        let mut command = command(tenant, grant(&Payer::Pool, 1));
        command.note = Some(note(action));
        world.store.submit(command).await.unwrap();
    }
    let list = async |before_seq, actions: &[&str], limit| {
        let filter = AuditFilter {
            before_seq,
            actions: actions.iter().map(|action| (*action).to_owned()).collect(),
            limit,
        };
        let rows = world.store.list_audit(tenant, &filter).await.unwrap();
        rows.into_iter()
            .map(|row| (row.seq, row.action))
            .collect::<Vec<_>>()
    };
    let row = |seq, action: &str| (seq, action.to_owned());
    assert_eq!(list(None, &[], 2).await, [row(6, "keyx"), row(5, "pricing_x")]);
    assert_eq!(
        list(Some(5), &[], 2).await,
        [row(4, "key.revoke"), row(3, "pricing.global")]
    );
    assert_eq!(
        list(None, &["key."], 9).await,
        [row(4, "key.revoke"), row(2, "key.create")]
    );
    assert_eq!(
        list(Some(4), &["key.", "pricing."], 9).await,
        [row(3, "pricing.global"), row(2, "key.create")]
    );
    assert_eq!(list(None, &["%", "_"], 9).await, []);
    let stranger = world.tenant().await;
    assert_eq!(log(&*world.store, stranger).await.len(), 1);
}

/// What was edited, removed or added by hand shows in the audit.
pub(crate) async fn the_audit_finds_what_was_done_to_the_log(world: &World) {
    let tenant = world.tenant().await;
    for _ in 0..3 {
        let row = audit_row(tenant);
        world
            .store
            .set_tenant_status(tenant, TenantStatus::Active, &row)
            .await
            .unwrap();
    }
    assert_eq!(world.findings(tenant).await, Vec::<String>::new());
    world.tamper();
    let unguard = if world.kind == Kind::Sqlite {
        "DROP TRIGGER audit_log_no_update; DROP TRIGGER audit_log_no_delete"
    } else {
        "ALTER TABLE audit_log DISABLE TRIGGER ALL"
    };
    world.sql(unguard).await.unwrap();
    world
        .sql("UPDATE audit_log SET target = 'another' WHERE seq = 2")
        .await
        .unwrap();
    let findings = world.findings(tenant).await;
    assert_eq!(findings, ["audit row 2: chain hash differs"]);
    world.sql("DELETE FROM audit_log WHERE seq = 4").await.unwrap();
    let findings = world.findings(tenant).await;
    assert_eq!(
        findings,
        [
            "audit row 2: chain hash differs",
            "the last audit row should be 4",
            "the audit log's chain does not end in the tenant's head"
        ]
    );
}
