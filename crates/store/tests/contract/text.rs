//! Text and documents as data: names, ids, prices, imported tools.

use turnpike_core::access::Role;
use turnpike_core::ledger::{Action, Payer};
use turnpike_store::{ImportedTools, PriceRow};

use crate::actions::{audit_row, claim, external, grant, joins, new_hold, usd, user};
use crate::directory::tenant;
use crate::world::{NOW, World};

// Fault matrix 148
pub(crate) async fn external_ids_are_case_sensitive(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&user("User"), 1)).await.unwrap();
    world.run(tenant, grant(&user("user"), 20)).await.unwrap();
    assert_eq!(world.balance(tenant, &user("User")).await.posted, usd(1));
    assert_eq!(world.balance(tenant, &user("user")).await.posted, usd(20));
    assert_eq!(world.balance(tenant, &user("USER")).await.posted, usd(0));
    assert!(
        world
            .store
            .find_end_user(tenant, &external("USER"))
            .await
            .unwrap()
            .is_none()
    );
}

// Fault matrix 152
pub(crate) async fn hostile_text_is_data(world: &World) {
    let id = world.tenant().await;
    world.run(id, grant(&Payer::Pool, 1_000_000)).await.unwrap();
    for text in [
        "'; DROP TABLE transfers; --",
        "\" OR 1=1 --",
        "$1",
        "?1",
        "\\'; SELECT pg_sleep(10); --",
        "{1,2,NULL}",
        "%s%n",
        "\u{202e}\u{1f4b8}\t\r\n",
        "NULL",
        "",
    ] {
        let mut named = tenant(text);
        named.name = text.to_owned();
        let mut audit = audit_row(named.id);
        (audit.actor, audit.target) = (text.to_owned(), text.to_owned());
        world.store.insert_tenant(&named, &audit).await.unwrap();
        assert_eq!(
            world.store.find_tenant(named.id).await.unwrap().unwrap().name,
            text
        );
        let change = joins(id, text, Role::Developer);
        assert!(world.store.change_member(&change, &audit_row(id)).await.unwrap());
        assert_eq!(world.store.list_memberships(text).await.unwrap().len(), 1);

        let mut hold = new_hold(&Payer::Pool, 1);
        hold.claim = Some(claim(id, text, 1));
        hold.loop_id = Some(text.into());
        hold.subject.model = Some(text.into());
        hold.subject.provider = text.into();
        hold.subject.attribution = Some(serde_json::json!({ text: text }).to_string().into());
        world.run(id, Action::Hold(Box::new(hold.clone()))).await.unwrap();
        let found = world.store.find_call(id, hold.call).await.unwrap().unwrap();
        assert_eq!(found.subject, hold.subject);
        let key = hold.claim.unwrap().key;
        assert_eq!(
            world.store.find_claim(&key).await.unwrap().unwrap().subject,
            hold.call.0
        );
    }
}

// Fault matrix 25
pub(crate) async fn prices_have_a_revision(world: &World) {
    let before = world.store.price_revision().await.unwrap();
    let price = |model: &str, document: &str| PriceRow {
        provider: "openai".to_owned(),
        model: model.to_owned(),
        document: document.to_owned(),
    };
    let both = [price("b", "{\"v\":1}"), price("a", "{\"v\":1}")];
    world.store.put_prices(&both, NOW).await.unwrap();
    world
        .store
        .put_prices(&[price("b", "{\"v\":2}")], NOW)
        .await
        .unwrap();
    assert_eq!(world.store.price_revision().await.unwrap(), before + 2);
    assert_eq!(
        world.store.list_prices().await.unwrap(),
        [price("a", "{\"v\":1}"), price("b", "{\"v\":2}")]
    );
}

pub(crate) async fn imported_tools_are_replaced_by_who_has_read_them(world: &World) {
    let store = &world.store;
    let begin = store.tools_revision().await.unwrap();
    let row = |provider: &str, tools: &str, base_url: Option<&str>| ImportedTools {
        provider: provider.to_owned(),
        base_url: base_url.map(str::to_owned),
        source: "{\"title\":\"O'Reilly \u{1f4b8}\"}".to_owned(),
        tools: tools.to_owned(),
        imported_at: NOW,
    };
    let (first, other) = (
        row("b", "[1]", None),
        row("B", "[]", Some("https://api.example.com")),
    );
    assert!(store.put_imported_tools(&first, begin).await.unwrap());
    // Who has not seen that change changes nothing.
    assert!(
        !store
            .put_imported_tools(&row("b", "[2]", None), begin)
            .await
            .unwrap()
    );
    assert!(store.put_imported_tools(&other, begin + 1).await.unwrap());
    assert_eq!(store.list_imported_tools().await.unwrap(), [other.clone(), first]);
    let again = row("b", "[3]", Some("https://x.example"));
    assert!(store.put_imported_tools(&again, begin + 2).await.unwrap());
    assert_eq!(store.list_imported_tools().await.unwrap(), [other.clone(), again]);
    assert!(store.remove_imported_tools("b").await.unwrap());
    assert!(!store.remove_imported_tools("b").await.unwrap());
    assert_eq!(store.tools_revision().await.unwrap(), begin + 4);
    assert_eq!(store.list_imported_tools().await.unwrap(), [other]);
}
