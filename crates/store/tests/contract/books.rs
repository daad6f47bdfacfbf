//! What protects the books beside the rules: triggers, constraints, the audit, the event sequence.

use turnpike_core::ids::TenantId;
use turnpike_core::ledger::{Action, Payer};

use crate::actions::{capture, grant, new_hold, usd};
use crate::world::{Kind, World};

async fn with_history(world: &World) -> TenantId {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000)).await.unwrap();
    for _ in 0..3 {
        let hold = new_hold(&Payer::Pool, 100);
        world
            .run(tenant, Action::Hold(Box::new(hold.clone())))
            .await
            .unwrap();
        world.run(tenant, capture(&hold, 40, 10)).await.unwrap();
    }
    tenant
}

// Fault matrix I7
pub(crate) async fn transfers_events_and_audit_rows_cannot_be_changed(world: &World) {
    with_history(world).await;
    for statement in [
        "UPDATE transfers SET amount = amount + 1",
        "DELETE FROM transfers",
        "UPDATE events SET data = '{}'",
        "UPDATE audit_log SET actor = 'nobody'",
        "DELETE FROM audit_log",
    ] {
        let refused = world.sql(statement).await.unwrap_err();
        assert!(refused.contains("append-only"), "{statement}: {refused}");
    }
}

// Fault matrix I2
pub(crate) async fn the_database_itself_refuses_an_overdraft(world: &World) {
    let tenant = with_history(world).await;
    for statement in [
        "UPDATE accounts SET posted = -1 WHERE kind = 0",
        "UPDATE accounts SET held = posted + 1 WHERE kind = 0",
        "UPDATE accounts SET held = -1 WHERE kind = 0",
        "UPDATE holds SET charged = amount + 1",
        "UPDATE holds SET refunded = charged + 1",
        "UPDATE holds SET state = 2",
    ] {
        let refused = world.sql(statement).await.unwrap_err().to_lowercase();
        assert!(refused.contains("check constraint"), "{statement}: {refused}");
    }
    assert_eq!(world.balance(tenant, &Payer::Pool).await.posted, usd(850));
}

// Fault matrix I6
pub(crate) async fn the_audit_finds_what_was_tampered_with(world: &World) {
    let tenant = with_history(world).await;
    assert!(world.findings(tenant).await.is_empty());
    world.tamper();
    let on_sqlite = world.kind == Kind::Sqlite;
    let unguard = if on_sqlite {
        "DROP TRIGGER transfers_no_update; DROP TRIGGER transfers_no_delete; DROP TRIGGER events_no_update"
    } else {
        "ALTER TABLE transfers DISABLE TRIGGER ALL; ALTER TABLE events DISABLE TRIGGER ALL"
    };
    world.sql(unguard).await.unwrap();
    for (tampering, undo, expected) in [
        (
            "UPDATE transfers SET amount = amount + 1 WHERE seq = 2",
            "UPDATE transfers SET amount = amount - 1 WHERE seq = 2",
            "transfer 2: chain hash differs",
        ),
        (
            "UPDATE transfers SET reference = 'x' WHERE seq = 3",
            "UPDATE transfers SET reference = 'chat' WHERE seq = 3",
            "transfer 3: chain hash differs",
        ),
        (
            "UPDATE accounts SET posted = posted + 1 WHERE kind = 0",
            "UPDATE accounts SET posted = posted - 1 WHERE kind = 0",
            "account pool: balance is",
        ),
        (
            "UPDATE accounts SET held = 5 WHERE kind = 0",
            "UPDATE accounts SET held = 0 WHERE kind = 0",
            "account pool: 0.000005 held",
        ),
        (
            "UPDATE holds SET charged = charged + 1",
            "UPDATE holds SET charged = charged - 1",
            "charged is 0.000051 in its record",
        ),
        ("DELETE FROM events WHERE seq = 3", "", "event 4: expected 3"),
        (
            "DELETE FROM transfers WHERE seq = 7",
            "",
            "the last transfer should be 7",
        ),
    ] {
        world.sql(tampering).await.unwrap();
        let findings = world.findings(tenant).await;
        assert!(
            findings.iter().any(|finding| finding.contains(expected)),
            "{tampering}: {findings:?}"
        );
        if !undo.is_empty() {
            world.sql(undo).await.unwrap();
            assert!(world.findings(tenant).await.is_empty(), "{tampering}");
        }
    }
}

// Fault matrix I8
pub(crate) async fn events_are_without_gaps(world: &World) {
    let tenant = with_history(world).await;
    // Refused commands use up no number.
    for _ in 0..5 {
        world
            .run(tenant, Action::Hold(Box::new(new_hold(&Payer::Pool, 9_999))))
            .await
            .unwrap_err();
    }
    world.run(tenant, grant(&Payer::Pool, 1)).await.unwrap();
    let all = world.events(tenant, None, 100).await;
    let seqs: Vec<i64> = all.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=10).rev().collect::<Vec<_>>());
    let page = world.events(tenant, Some(4), 2).await;
    assert_eq!(page.iter().map(|event| event.seq).collect::<Vec<_>>(), [3, 2]);
    assert!(
        all.iter()
            .all(|event| serde_json::from_str::<serde_json::Value>(&event.data).is_ok())
    );
}
