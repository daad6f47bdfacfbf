//! What is explained is what is charged, and edits at the same moment lose nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use turnpike_core::access::Role;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::ExternalUserId;
use turnpike_core::ledger::Payer;
use turnpike_core::money::{CreditsPerDollar, Micros, PicoUsd};
use turnpike_core::pricing::{Charge, EndpointPrice, Explain, Markup, ModelPrice, Rates};
use turnpike_store::{Catalogue as _, KeyPricing, MemoryStore, PriceRow, Tenant, TenantPricing};
use turnpike_upstream::{Provider, ProviderKind, ProviderSettings};

use super::*;
use crate::auth::{Actor, ActorCredential};
use crate::calls::CallDesk;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::environment::{AppSettings, Environment as _};
use crate::providers::{ModelEntry, ProviderEntry};
use crate::testing::{self, Clock};
use crate::tools::{ToolDefinition, ToolEntry};

/// A price of a tool, or of a model whose calls are bounded by their text and budget.
#[derive(Clone, Debug)]
enum Price {
    Tool(EndpointPrice),
    Model(Box<ModelPrice>),
}

/// One random configuration, and a call.
#[derive(Clone, Debug)]
struct Case {
    price: Price,
    /// Key, key's endpoint, endpoint, provider, global.
    levels: [Markup; 5],
    rate: i64,
    count: u32,
}

fn picos() -> impl Strategy<Value = PicoUsd> {
    (0_i128..5_000_000_000_000).prop_map(PicoUsd::new)
}

fn some_picos() -> impl Strategy<Value = Option<PicoUsd>> {
    prop::option::of(picos())
}

fn markup() -> impl Strategy<Value = Markup> {
    let bps = prop::option::of(0_u32..=100_000);
    let flat = prop::option::of((0_i64..5_000_000).prop_map(Micros::new));
    (bps, flat).prop_map(|(markup_bps, flat)| Markup { markup_bps, flat })
}

fn price() -> impl Strategy<Value = Price> {
    let metered = |units: &'static str| {
        (picos(), some_picos()).prop_map(move |(unit_usd, base_usd)| {
            Price::Tool(EndpointPrice::Metered {
                unit_usd,
                units: units.to_owned(),
                base_usd,
            })
        })
    };
    let cheap = || prop::option::of((0_i128..100_000_000).prop_map(PicoUsd::new));
    let model = (cheap(), cheap(), cheap(), cheap(), cheap(), cheap());
    let model = model.prop_map(|(input, output, cached_input, reasoning, per_call, above)| {
        let rates = Rates {
            input: Some(input.unwrap_or(PicoUsd::ZERO)),
            output: Some(output.unwrap_or(PicoUsd::ZERO)),
            cached_input,
            reasoning,
            per_call,
            ..Rates::default()
        };
        let mut price = ModelPrice::new("p", "m", rates);
        price.max_output_tokens = Some(2000);
        if above.is_some() {
            price.tiers = vec![turnpike_core::pricing::Tier {
                above_prompt_tokens: 300,
                rates: Rates {
                    input: above,
                    ..Rates::default()
                },
            }];
        }
        Price::Model(Box::new(price))
    });
    prop_oneof![
        picos().prop_map(|usd| Price::Tool(EndpointPrice::Fixed { usd })),
        metered("args.count"),
        metered("math.ceil(double(args.count) / 7.0)"),
        metered("size(args.items) * 2 + 1"),
        model,
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let levels = [markup(), markup(), markup(), markup(), markup()];
    (price(), levels, 1_i64..=1_000_000, 0_u32..1000).prop_map(|(price, levels, rate, count)| Case {
        price,
        levels,
        rate,
        count,
    })
}

struct Bench {
    clock: Arc<Clock>,
    store: Arc<MemoryStore>,
    tenant: Tenant,
}

impl Bench {
    async fn new() -> Self {
        let (clock, store) = (Clock::new(), Arc::new(MemoryStore::new()));
        let tenant = testing::tenant(&store, &clock).await;
        Self { clock, store, tenant }
    }

    /// A shelf with one tool `t`, or with one model `m`.
    async fn shelf(&self, price: &Price) -> Arc<Shelf> {
        let settings = ProviderSettings {
            id: "p".to_owned(),
            kind: ProviderKind::Simulated,
            ..ProviderSettings::default()
        };
        let mut entry = ProviderEntry {
            provider: Provider::new(&settings).unwrap(),
            total_timeout_ms: 1000,
            prices_from: "p".to_owned(),
            models: Vec::new(),
            tools: BTreeMap::new(),
        };
        match price {
            Price::Tool(price) => {
                let definition = ToolDefinition {
                    title: "T".to_owned(),
                    summary: "T.".to_owned(),
                    schema: json!({}),
                    price: Some(price.clone()),
                    ..ToolDefinition::default()
                };
                let tool = ToolEntry::new(definition).unwrap();
                entry.tools.insert("t".to_owned(), Arc::new(tool));
            }
            Price::Model(price) => {
                entry.models.push(ModelEntry {
                    id: "m".to_owned(),
                    upstream: "m".to_owned(),
                });
                let row = PriceRow {
                    provider: "p".to_owned(),
                    model: "m".to_owned(),
                    document: serde_json::to_string(price).unwrap(),
                };
                self.store.put_prices(&[row], self.clock.now()).await.unwrap();
            }
        }
        let shelf = Shelf::new(vec![entry]);
        shelf.refresh(&*self.store).await.unwrap();
        Arc::new(shelf)
    }

    fn desk(&self, shelf: Arc<Shelf>) -> PricingDesk {
        let settings = Arc::new(SettingsDesk::new(self.store.clone(), self.clock.clone()));
        PricingDesk::new(self.store.clone(), settings, shelf)
    }

    /// The charge that a call is held for, and its explanation.
    async fn compare(&self, case: &Case) -> (Charge, Explain) {
        let endpoint = match &case.price {
            Price::Tool(_) => "t",
            Price::Model(_) => "m",
        };
        let slug = format!("p/{endpoint}");
        let [own, for_endpoint, at_endpoint, at_provider, global] = case.levels;
        let mut tenant = self.tenant.clone();
        tenant.credits_per_dollar = CreditsPerDollar::try_from(case.rate).unwrap();
        tenant.settings.pricing = TenantPricing {
            global,
            providers: [("p".to_owned(), at_provider)].into(),
            endpoints: [(slug.clone(), at_endpoint)].into(),
        };
        let pricing = KeyPricing {
            markup_bps: own.markup_bps,
            flat_markup_usdc: own.flat,
            endpoints: [(slug, for_endpoint)].into(),
        };
        let key = Arc::new(testing::secret_key(&tenant, &self.clock, pricing));
        let actor = Actor {
            credential: ActorCredential::Key(key.clone()),
            ..testing::member(&tenant, Role::Owner)
        };
        let items: Vec<u32> = (0..case.count % 50).collect();
        let args = match &case.price {
            Price::Tool(_) => json!({ "count": case.count, "items": items }),
            Price::Model(_) => {
                let text = "é".repeat(usize::try_from(case.count).unwrap());
                json!({ "model": "p/m", "messages": [{ "role": "user", "content": text }], "max_tokens": case.count + 1 })
            }
        };
        let shelf = self.shelf(&case.price).await;
        let context = CallContext {
            actor: actor.clone(),
            payer: Payer::EndUser(ExternalUserId::parse("alice").unwrap()),
            route: "POST /".to_owned(),
            idempotency_key: None,
            attribution: None,
            loop_id: None,
            approval_token: None,
        };
        let engine = Engine::new(self.store.clone(), self.clock.clone(), AppSettings::default());
        let desk = CallDesk::new(Arc::new(engine), shelf.clone());
        let raw = args.to_string();
        let held = match &case.price {
            Price::Tool(_) => {
                let (entry, tool) = shelf.tool("p", "t").unwrap();
                let prepared = desk.prepare_tool(&context, Some(&key), entry, "t", tool, raw.as_bytes());
                prepared.await.unwrap().hold
            }
            Price::Model(_) => {
                let prepared = desk.prepare_chat(&context, Some(&key), raw.as_bytes());
                prepared.unwrap().hold
            }
        };
        let query = ExplainQuery {
            provider: Some("p".to_owned()),
            endpoint: Some(endpoint.to_owned()),
            args: Some(raw),
            key_id: None,
        };
        let explain = self.desk(shelf).explain(&actor, &query).await.unwrap();
        (held, explain)
    }
}

// Fault matrix 183, I10
#[test]
fn an_explanation_is_the_charge() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bench = runtime.block_on(Bench::new());
    let mut runner = TestRunner::new(Config::with_cases(1000));
    let compare = |case: Case| {
        let (held, explain) = runtime.block_on(bench.compare(&case));
        let rate = CreditsPerDollar::try_from(case.rate).unwrap();
        prop_assert_eq!(explain.effective_usd, Some(held.effective));
        prop_assert_eq!(explain.effective_credits, Some(rate.credits(held.effective)));
        prop_assert_eq!(explain.base_usd, Some(held.base));
        prop_assert_eq!(explain.margin_usd, Some(held.margin));
        prop_assert_eq!(
            (explain.markup_usd, explain.flat_markup_usd),
            (Some(held.markup), Some(held.flat))
        );
        Ok(())
    };
    runner.run(&case(), compare).unwrap();
}

#[tokio::test]
async fn parallel_edits_of_different_levels_lose_nothing() {
    let bench = Bench::new().await;
    let price = Price::Tool(EndpointPrice::Live { ceiling_usd: None });
    let desk = bench.desk(bench.shelf(&price).await);
    let owner = testing::member(&bench.tenant, Role::Owner);
    let body = |bps: i64| json!({ "markupBps": bps }).to_string();
    let edits = (1..=20).map(|number| {
        let (desk, owner) = (&desk, &owner);
        async move {
            let level = match number % 3 {
                0 => Level::Global,
                1 => Level::Provider("p"),
                _ => Level::Endpoint("p", "t"),
            };
            desk.set(owner, level, body(number).as_bytes()).await.unwrap();
        }
    });
    join_all(edits).await;
    let levels = desk.levels(&owner).await.unwrap();
    for level in [
        &levels["global"],
        &levels["providers"]["p"],
        &levels["endpoints"]["p/t"],
    ] {
        assert!(level["markupBps"].is_i64(), "{levels}");
    }
    let page = desk.history(&owner, None, 100).await.unwrap();
    assert_eq!((page.rows.len(), page.next_cursor), (20, None));
    // Each says what it found: a chain from nothing to now.
    let of_global: Vec<&Value> = page.rows.iter().filter(|row| row["target"] == "global").collect();
    for pair in of_global.windows(2) {
        assert_eq!(pair[0]["before"], pair[1]["after"]);
    }
    assert_eq!(of_global.last().unwrap()["before"], Value::Null);
}

#[tokio::test]
async fn what_is_not_there_has_no_price() {
    let bench = Bench::new().await;
    let price = Price::Tool(EndpointPrice::Live { ceiling_usd: None });
    let desk = bench.desk(bench.shelf(&price).await);
    let owner = testing::member(&bench.tenant, Role::Owner);
    for level in [
        Level::Provider("q"),
        Level::Endpoint("p", "u"),
        Level::Endpoint("q", "t"),
    ] {
        let refused = desk.set(&owner, level, b"{\"markupBps\":1}").await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::EndpointNotFound);
        let refused = desk.reset(&owner, level).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::EndpointNotFound);
    }
    desk.reset(&owner, Level::Global).await.unwrap();
    let page = desk.history(&owner, None, 100).await.unwrap();
    assert!(page.rows.is_empty(), "nothing was changed");
}

/// A provider's model is explained by its own price, although another provider has one of that whole name, and a call
/// that names the provider goes to it.
#[tokio::test]
async fn a_named_provider_goes_before_a_model_of_that_whole_name() {
    let bench = Bench::new().await;
    let entry = |provider: &str, model: &str| {
        let settings = ProviderSettings {
            id: provider.to_owned(),
            kind: ProviderKind::Simulated,
            ..ProviderSettings::default()
        };
        ProviderEntry {
            provider: Provider::new(&settings).unwrap(),
            total_timeout_ms: 1000,
            prices_from: provider.to_owned(),
            models: vec![ModelEntry {
                id: model.to_owned(),
                upstream: model.to_owned(),
            }],
            tools: BTreeMap::new(),
        }
    };
    let price = |provider: &str, model: &str| {
        let rates = Rates {
            input: Some(PicoUsd::ZERO),
            output: Some(PicoUsd::ZERO),
            ..Rates::default()
        };
        PriceRow {
            provider: provider.to_owned(),
            model: model.to_owned(),
            document: serde_json::to_string(&ModelPrice::new(provider, model, rates)).unwrap(),
        }
    };
    let rows = [price("router", "own/m"), price("own", "m")];
    bench.store.put_prices(&rows, bench.clock.now()).await.unwrap();
    let shelf = Shelf::new(vec![entry("router", "own/m"), entry("own", "m")]);
    shelf.refresh(&*bench.store).await.unwrap();
    for found in [shelf.model("own/m", |_, _| Ok(())), shelf.model_of("own", "m")] {
        assert_eq!(found.unwrap().entry.provider.id(), "own");
    }
    let routed = shelf.model("router/own/m", |_, _| Ok(())).unwrap();
    assert_eq!(routed.entry.provider.id(), "router");
    let code = shelf.model_of("router", "m").unwrap_err().code;
    assert_eq!(code, ErrorCode::EndpointNotFound);
}
