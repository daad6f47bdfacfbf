//! What is said of a tool's price and what is charged for it are one number, whatever the catalogue (I10).

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::harness::{Setup, Site, Store};
use crate::on_both_stores;
use crate::tool_quotes::ESTIMATE;

on_both_stores!(what_is_described_estimated_explained_and_charged_is_one_number);

/// Tools of a random catalogue.
const TOOLS: u64 = 16;

/// An amount below so many pico-dollars.
fn usd(random: &mut StdRng, most_picos: u64) -> String {
    format!("0.{:012}", random.random_range(0..most_picos))
}

/// A catalogue of tools with fixed and metered prices down to a pico-dollar.
fn catalogue(store: Store, random: &mut StdRng) -> Setup {
    let mut setup = Setup::new(store);
    let endpoints: Vec<toml::Value> = (0..TOOLS)
        .map(|number| {
            let price = if random.random_bool(0.5) {
                format!("{{ kind = 'fixed', usd = '{}' }}", usd(random, 20_000_000_000))
            } else {
                let (unit, base) = (usd(random, 1_000_000_000), usd(random, 2_000_000_000));
                let units = ["args.n", "args.n * 3 + 1", "size(args.list)", "2"][random.random_range(0..4)];
                format!("{{ kind = 'metered', unit_usd = '{unit}', base_usd = '{base}', units = '{units}' }}")
            };
            let tool = format!(
                "name = 't{number}'\ntitle = 'Tool {number}'\nsummary = 'A tool.'\nprice = {price}\n\
                 schema = {{ type = 'object' }}\nhttp = {{ method = 'POST', path = '/fetch' }}\n"
            );
            toml::Value::Table(tool.parse().unwrap())
        })
        .collect();
    for provider in setup.config["providers"].as_array_mut().unwrap() {
        if provider["id"].as_str() == Some("tools") {
            provider
                .as_table_mut()
                .unwrap()
                .insert("endpoints".to_owned(), endpoints.clone().into());
        }
    }
    setup
}

/// Another catalogue with every run; `TURNPIKE_SEED` repeats one.
fn seed() -> u64 {
    let seed = std::env::var("TURNPIKE_SEED")
        .map_or_else(|_| rand::random(), |text| text.parse().expect("a number"));
    eprintln!("TURNPIKE_SEED={seed}");
    seed
}

async fn what_is_described_estimated_explained_and_charged_is_one_number(store: Store) {
    let mut random = StdRng::seed_from_u64(seed());
    let site = catalogue(store, &mut random).start().await;
    site.grant("100", Some("alice"));
    let mut markup = || {
        let mut level = json!({});
        if random.random_bool(0.7) {
            level["markupBps"] = json!(random.random_range(0..=100_000));
        }
        if random.random_bool(0.7) {
            level["flatMarkupUsdc"] = json!(format!("0.{:06}", random.random_range(0..20_000)));
        }
        level
    };
    let mut pricing = markup();
    pricing["endpoints"] = json!({ "tools/t0": markup(), "tools/t1": markup(), "tools/t2": markup() });
    let body = json!({ "name": "n", "scopes": ["tenant:read"], "pricing": pricing });
    let own = site.issue(&body).await["key"].as_str().unwrap().to_owned();
    for level in [
        "global",
        "providers/tools",
        "endpoints/tools/t0",
        "endpoints/tools/t3",
        "endpoints/tools/t4",
    ] {
        site.price(level, &markup()).await.expect(200);
    }
    let mut known = 0;
    for number in 0..TOOLS {
        let slug = format!("tools/t{number}");
        for key in [&site.key, &own] {
            for user in [None, Some("alice")] {
                let args = json!({ "n": number, "list": vec![1; usize::try_from(number).unwrap()] });
                known += usize::from(agrees(&site, key, &slug, user, &args).await);
            }
        }
    }
    assert!(known >= 12, "only {known} prices were known before the call");
}

/// Compares what is said and what is charged; says whether the price was known without the arguments.
async fn agrees(site: &Site, key: &str, slug: &str, user: Option<&str>, args: &Value) -> bool {
    let post = |path: &str, body: &Value| {
        let post = site.client.request(Method::POST, path).bearer(key).json(body);
        match user {
            Some(user) => post.paid_by(user),
            None => post,
        }
    };
    let described = post("/api/credits/tools/describe", &json!({ "slug": slug }))
        .send()
        .await;
    let tool = described.expect(200).json()["tool"].clone();
    let found = post("/api/credits/tools/search", &json!({ "query": slug }))
        .send()
        .await;
    let found = found.expect(200).json()["results"][0].clone();
    assert_eq!(
        (&found["priceUsd"], &found["priceCredits"]),
        (&tool["priceUsd"], &tool["priceCredits"]),
        "{slug}"
    );
    let without = site.explained(key, slug, None).await.expect(200).json();
    assert_eq!(tool["pricing"], without["explain"], "{slug}");
    let explain = site
        .explained(key, slug, Some(&args.to_string()))
        .await
        .expect(200)
        .json();
    let (usd, credits) = match user {
        Some(_) => ("effectiveUsd", "effectiveCredits"),
        None => ("baseUsd", "baseCredits"),
    };
    let (usd, credits) = (&explain["explain"][usd], &explain["explain"][credits]);
    let quoted = post(ESTIMATE, &json!({ "slug": slug, "args": args }))
        .send()
        .await;
    let quoted = quoted.expect(200).json();
    let estimate = &quoted["estimate"];
    assert_eq!(
        (
            &estimate["kind"],
            &estimate["priceUsd"],
            &estimate["priceCredits"]
        ),
        (&json!("exact"), usd, credits),
        "{slug} for {user:?}"
    );
    let once = uuid::Uuid::new_v4().to_string();
    let token = quoted["approvalToken"].as_str().unwrap();
    let paid = post(&format!("/api/wrapped/credits/{slug}"), args)
        .header("x-svc-approval-token", token)
        .once(&once)
        .send()
        .await
        .expect(200);
    assert_eq!(
        (
            paid.header("x-svc-cost-usd"),
            paid.header("x-svc-credits-charged")
        ),
        (usd.as_str(), credits.as_str()),
        "{slug} for {user:?}: {explain}"
    );
    if tool["priceUsd"].is_null() {
        assert_eq!(tool["dynamic"], true, "{slug}");
        return false;
    }
    assert_eq!(
        (&tool["priceUsd"], &tool["priceCredits"]),
        (usd, credits),
        "{slug} for {user:?}"
    );
    true
}
