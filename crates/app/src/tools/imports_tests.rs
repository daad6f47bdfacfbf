//! Imports over imports: what changes, which prices hold, and what the shelf makes of them.

use std::sync::Arc;

use turnpike_store::{Catalogue as _, MemoryStore};
use turnpike_upstream::{HttpEndpoint, Provider, ProviderKind, ProviderSettings, ToolMethod};

use super::*;
use crate::providers::{ProviderEntry, Shelf};
use crate::testing::Clock;
use crate::tools::ToolEntry;

fn fixed(usd: &str) -> EndpointPrice {
    serde_json::from_value(json!({ "kind": "fixed", "usd": usd })).unwrap()
}

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        schema: json!({ "type": "object" }),
        http: Some(HttpEndpoint {
            method: ToolMethod::Get,
            path: format!("/{name}"),
            ..HttpEndpoint::default()
        }),
        ..ToolDefinition::default()
    }
}

fn of(provider: &str, names: &[&str]) -> ToolImport {
    ToolImport {
        provider: provider.to_owned(),
        configured: false,
        base_url: Some("https://api.example.com/v1".to_owned()),
        source: ImportSource::default(),
        tools: names.iter().map(|name| tool(name)).collect(),
        price: None,
        prices: BTreeMap::new(),
        dry_run: false,
    }
}

struct World {
    store: MemoryStore,
    clock: Arc<Clock>,
}

impl World {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            clock: Clock::new(),
        }
    }

    fn desk(&self) -> OperatorImports<'_> {
        OperatorImports {
            store: &self.store,
            environment: &*self.clock,
        }
    }

    /// The changes, as `tool change what`.
    async fn import(&self, import: &ToolImport) -> Vec<String> {
        let report = self.desk().import(import).await.unwrap();
        let words = |change: &Value| {
            let text = |member: &str| change[member].as_str().unwrap();
            format!("{} {} {}", text("tool"), text("change"), change["what"])
        };
        report["changes"].as_array().unwrap().iter().map(words).collect()
    }

    async fn price(&self, name: &str) -> Option<EndpointPrice> {
        let rows = self.store.list_imported_tools().await.unwrap();
        definitions(&rows[0].tools)[name].price.clone()
    }
}

#[tokio::test]
async fn an_import_is_an_update_that_keeps_prices() {
    let world = World::new();
    let mut import = of("p", &["a", "b", "list-b"]);
    import.price = Some(fixed("0.001"));
    import.prices = [
        ("*b".to_owned(), fixed("0.002")),
        ("b".to_owned(), fixed("0.003")),
    ]
    .into();
    import.dry_run = true;
    assert_eq!(world.import(&import).await.len(), 3);
    assert!(world.store.list_imported_tools().await.unwrap().is_empty());
    import.dry_run = false;
    assert_eq!(world.import(&import).await[0], "a added []");
    assert_eq!(world.price("a").await, Some(fixed("0.001")));
    assert_eq!(world.price("b").await, Some(fixed("0.003")));
    assert_eq!(world.price("list-b").await, Some(fixed("0.002")));
    // The same again changes nothing; what it sets no price for keeps its own.
    assert!(world.import(&import).await.is_empty());
    let mut later = of("p", &["b", "list-b", "c"]);
    later.base_url = None;
    later.tools[0].summary = "New.".to_owned();
    later.prices = [
        ("list-*".to_owned(), fixed("0.004")),
        ("gone".to_owned(), fixed("1")),
    ]
    .into();
    assert_eq!(
        world.import(&later).await,
        [
            "b changed [\"summary\"]",
            "list-b changed [\"price\"]",
            "c added []",
            "a removed []"
        ]
    );
    assert_eq!(world.price("b").await, Some(fixed("0.003")));
    assert_eq!(world.price("c").await, None);
    let report = world.desk().import(&later).await.unwrap();
    assert_eq!(
        (&report["unmatchedPrices"], &report["priced"]),
        (&json!(["gone"]), &json!(2))
    );
    assert_eq!(report["baseUrl"], "https://api.example.com/v1");
    let listed = world.desk().list().await.unwrap();
    let listed = &listed["providers"][0];
    assert_eq!((&listed["tools"], &listed["priced"]), (&json!(3), &json!(2)));
    world.desk().remove("p").await.unwrap();
    assert_eq!(
        world.desk().remove("p").await.unwrap_err().code,
        ErrorCode::NotFound
    );
}

#[tokio::test]
async fn an_import_that_cannot_work_is_refused() {
    let world = World::new();
    let mut nowhere = of("p", &["a"]);
    nowhere.base_url = None;
    let mut wrong_price = of("p", &["a"]);
    let units = json!({ "kind": "metered", "unit_usd": "1", "units": "args.(" });
    wrong_price
        .prices
        .insert("a".to_owned(), serde_json::from_value(units).unwrap());
    for wrong in [
        nowhere,
        wrong_price,
        of("V1", &["a"]),
        of("v1", &["a"]),
        of("../x", &["a"]),
        of(&"x".repeat(65), &["a"]),
        of("p", &[]),
        of("p", &["a", "a"]),
        of("p", &["a/b"]),
    ] {
        let refused = world.desk().import(&wrong).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationError, "{refused:?}");
    }
    assert!(world.store.list_imported_tools().await.unwrap().is_empty());
}

fn configured(id: &str, kind: ProviderKind) -> ProviderEntry {
    let settings = ProviderSettings {
        id: id.to_owned(),
        kind,
        base_url: "http://127.0.0.1:1".to_owned(),
        ..ProviderSettings::default()
    };
    let own = Arc::new(ToolEntry::new(tool("own")).unwrap());
    ProviderEntry {
        provider: Provider::new(&settings).unwrap(),
        total_timeout_ms: 1000,
        prices_from: id.to_owned(),
        models: Vec::new(),
        tools: [("own".to_owned(), own)].into(),
    }
}

#[tokio::test]
async fn the_shelf_takes_imports_over_and_leaves_broken_ones_out() {
    let world = World::new();
    let shelf = Shelf::new(vec![
        configured("known", ProviderKind::Http),
        configured("ai", ProviderKind::OpenAi),
    ]);
    shelf.refresh(&world.store).await.unwrap();
    let before = shelf.stock();
    let mut known = of("known", &["a", "own"]);
    (known.configured, known.base_url) = (true, None);
    known.tools[1].summary = "imported".to_owned();
    let mut wrong_kind = of("ai", &["a"]);
    wrong_kind.configured = true;
    let mut inside = of("inside", &["a"]);
    inside.base_url = Some("https://127.0.0.1".to_owned());
    let mut broken = of("new", &["a", "b", "c"]);
    broken.tools[0].schema = json!({ "type": 7 });
    broken.tools[1].http.as_mut().unwrap().path = "/a/../b".to_owned();
    for import in [&known, &wrong_kind, &inside, &broken] {
        world.import(import).await;
    }
    shelf.refresh(&world.store).await.unwrap();
    let stock = shelf.stock();
    assert_ne!(stock.revision(), before.revision());
    let slug = |(provider, name, _): (&str, &str, &Arc<ToolEntry>)| format!("{provider}/{name}");
    let slugs: Vec<String> = stock.tools().map(slug).collect();
    assert_eq!(slugs, ["known/a", "known/own", "ai/own", "new/c"]);
    // What is configured goes before what is imported; who began before keeps what there was.
    assert_eq!(shelf.tool("known", "own").unwrap().1.definition.summary, "");
    assert_eq!(before.tools().count(), 2);
    assert!(shelf.tool("inside", "a").is_err());
    // What did not change is not made again.
    world.import(&of("other", &["x"])).await;
    let (kept, _) = shelf.tool("new", "c").unwrap();
    shelf.refresh(&world.store).await.unwrap();
    assert!(Arc::ptr_eq(&kept, &shelf.tool("new", "c").unwrap().0));
    world.desk().remove("new").await.unwrap();
    shelf.refresh(&world.store).await.unwrap();
    assert!(shelf.tool("new", "c").is_err() && shelf.tool("known", "a").is_ok());
}
