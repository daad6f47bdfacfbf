//! The audit log of the commands, and what a row that is not as it should be does to its neighbours.

use futures_util::future::join_all;
use turnpike_core::ids::audit_id;
use turnpike_core::ledger::command::PaymentState;
use turnpike_core::ledger::{Action, Command, Outcome, Payer, Rejection};
use turnpike_store::{AuditRow, SubmitError};

use crate::actions::{audit_row, claim, command, grant, joins, new_hold, usd, user};
use crate::calls::rejection;
use crate::money_in::{mint, new_token, new_topup, note, open_topup, retire, told};
use crate::world::World;

fn noted(mut command: Command, action: &'static str) -> Command {
    command.note = Some(note(action));
    command
}

async fn notes(world: &World, action: &str) -> String {
    let count = format!("SELECT CAST(COUNT(*) AS TEXT) FROM audit_log WHERE action = '{action}'");
    world.sql(&count).await.unwrap().unwrap()
}

// Fault matrix 160: ten at once retire the end user once, with one row in the log.
pub(crate) async fn a_command_that_is_repeated_is_noted_once(world: &World) {
    let tenant = world.tenant().await;
    for _ in 0..3 {
        world.run(tenant, mint(&new_token("alice", None))).await.unwrap();
    }
    let retired = (0..10).map(|_| {
        world
            .store
            .submit(noted(command(tenant, retire("alice")), "user.retire"))
    });
    let mut counts = Vec::new();
    for result in join_all(retired).await {
        match result {
            Ok(Outcome::Retired {
                already,
                revoked_tokens,
                ..
            }) => counts.push((already, revoked_tokens)),
            other => panic!("{other:?}"),
        }
    }
    counts.sort_unstable();
    assert_eq!(counts[0], (false, 3));
    assert_eq!(counts[1..], [(true, 0); 9]);
    assert_eq!(notes(world, "user.retire").await, "1");

    let mut new = new_topup(None, 100);
    new.claim = Some(claim(tenant, "k", 1));
    let begun = (0..10).map(|_| {
        world
            .store
            .submit(noted(command(tenant, open_topup(&new)), "topup.create"))
    });
    assert!(join_all(begun).await.iter().all(Result::is_ok));
    let refused = noted(command(tenant, mint(&new_token("alice", None))), "token.mint");
    assert_eq!(
        rejection(world.store.submit(refused).await),
        Rejection::EndUserRetired
    );
    assert_eq!(
        (
            notes(world, "topup.create").await,
            notes(world, "token.mint").await
        ),
        ("1".to_owned(), "0".to_owned())
    );
    let text = world
        .sql("SELECT actor || after_json || origin FROM audit_log WHERE action = 'topup.create'")
        .await;
    assert_eq!(text.unwrap().unwrap(), "a 'quoted' \"actor\"{\"é\":1}127.0.0.1");
}

pub(crate) async fn a_command_whose_note_cannot_be_written_does_nothing(world: &World) {
    let tenant = world.tenant().await;
    let spoiled = noted(command(tenant, grant(&Payer::Pool, 77)), "spoiled");
    let taken = AuditRow {
        id: audit_id(spoiled.at, spoiled.id),
        ..audit_row(tenant)
    };
    let change = joins(tenant, "p", turnpike_core::access::Role::Viewer);
    assert!(world.store.change_member(&change, &taken).await.unwrap());
    let mut commands = vec![spoiled];
    commands.extend((0..9).map(|_| noted(command(tenant, grant(&Payer::Pool, 1)), "fine")));
    let results = join_all(commands.into_iter().map(|command| world.store.submit(command))).await;
    assert!(
        matches!(results[0], Err(SubmitError::Unavailable(_))),
        "{:?}",
        results[0]
    );
    assert!(results[1..].iter().all(Result::is_ok), "{results:?}");
    assert_eq!(world.balance(tenant, &Payer::Pool).await.posted, usd(9));
    assert_eq!(
        (notes(world, "spoiled").await, notes(world, "fine").await),
        ("0".to_owned(), "9".to_owned())
    );
}

// A document that no version of this program can read: what is about it is refused, the rest of its batch is not.
pub(crate) async fn a_row_that_cannot_be_read_disturbs_no_neighbour(world: &World) {
    let tenant = world.tenant().await;
    let new = new_topup(Some("alice"), 100);
    world.run(tenant, open_topup(&new)).await.unwrap();
    world
        .sql("UPDATE topups SET document = '{' || document")
        .await
        .unwrap();
    let commands = (0..20).map(|n| {
        let action = match n {
            7 => told(&new, PaymentState::Paid, None),
            _ if n % 2 == 0 => grant(&user("alice"), 10),
            _ => Action::Hold(Box::new(new_hold(&user("alice"), 0))),
        };
        world.run(tenant, action)
    });
    for (n, result) in join_all(commands).await.into_iter().enumerate() {
        assert_eq!(
            matches!(result, Err(SubmitError::Unavailable(_))),
            n == 7,
            "{n}: {result:?}"
        );
        assert_eq!(result.is_ok(), n != 7, "{n}: {result:?}");
    }
    world
        .sql("UPDATE topups SET document = SUBSTR(document, 2)")
        .await
        .unwrap();
    world
        .run(tenant, told(&new, PaymentState::Paid, None))
        .await
        .unwrap();
    assert_eq!(world.balance(tenant, &user("alice")).await.posted, usd(1_050_100));
}
