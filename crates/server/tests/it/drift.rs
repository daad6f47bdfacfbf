//! Usage drift: told once and ended once, found by the running service and by what an operator imports.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::upstream::{completion, tokens};
use crate::harness::{Setup, Site, Store, chat, eventually, micros, operate};
use crate::on_both_stores;

on_both_stores!(
    ten_times_the_usage_is_told_once_and_ends_once,
    an_invoice_that_differs_is_told_to_those_who_called,
    every_form_of_an_export_says_the_same,
    an_export_that_cannot_be_read_changes_nothing,
);

const DETECTED: &str = "credits.usage_drift.detected";
const RESOLVED: &str = "credits.usage_drift.resolved";

/// µUSD as dollars.
pub fn usd(micros: i64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn write(site: &Site, name: &str, text: &str) -> PathBuf {
    let file = site.data.with_file_name(name);
    std::fs::write(&file, text).unwrap();
    file
}

/// Imports what provider `up` says it billed.
pub fn import(site: &Site, name: &str, text: &str) -> Value {
    let file = write(site, name, text);
    site.operate(&["drift", "import", file.to_str().unwrap(), "--provider", "up"])
}

/// What the calls of the workspace cost, in µUSD.
pub fn metered(site: &Site) -> i64 {
    site.export("usage")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|call| {
            let amount = |name: &str| micros(call[name].as_str().unwrap());
            amount("chargedUsd") - amount("refundedUsd") - amount("marginUsd")
        })
        .sum()
}

fn told(site: &Site) -> (usize, usize) {
    (site.events(DETECTED).len(), site.events(RESOLVED).len())
}

// Fault matrix 82, I8, I12
async fn ten_times_the_usage_is_told_once_and_ends_once(store: Store) {
    let site = Setup::new(store).set("drift.interval_secs", 1).start().await;
    // Two nodes compare the same days where there can be two.
    let second = if store == Store::Postgres {
        Some(site.second().await)
    } else {
        None
    };
    site.chat(&chat("tokens", "hi")).send().await.expect(200);
    for _ in 0..3 {
        site.upstream
            .script(|seen| vec![completion(seen.number, &tokens(10, 600_000))]);
        site.chat(&chat("tokens", "hi")).send().await.expect(200);
    }
    let detected = eventually("the drift is told of", || async { site.events(DETECTED).pop() }).await;
    let data = &detected["data"];
    assert_eq!(
        (&data["provider"], &data["thresholdBps"], &data["externalUserId"]),
        (&json!("up"), &json!(100), &Value::Null)
    );
    let drift = micros(data["providerUsd"].as_str().unwrap()) - micros(data["meteredUsd"].as_str().unwrap());
    assert_eq!(micros(data["driftUsd"].as_str().unwrap()), drift);
    assert!(drift > 1_000_000, "{data}");
    // Normal again: the passes go on, and nothing is told twice.
    site.upstream
        .script(|seen| vec![completion(seen.number, &tokens(10, 5))]);
    for _ in 0..3 {
        site.chat(&chat("tokens", "hi")).send().await.expect(200);
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    assert_eq!(told(&site), (1, 0));
    // The provider bills what was metered.
    let day = data["windowStart"].as_str().unwrap()[..10].to_owned();
    let invoice = format!("date,cost\n{day},{}\n", usd(metered(&site)));
    let report = import(&site, "invoice.csv", &invoice);
    let first = &report["days"][0];
    assert_eq!(
        (&first["verdict"], &first["driftUsd"], &first["resolved"]),
        (&json!("agrees"), &json!("0"), &json!(1)),
        "{report:#}"
    );
    let resolved = site.events(RESOLVED).pop().unwrap();
    assert_eq!(resolved["data"]["driftId"], data["driftId"]);
    assert_eq!(resolved["data"]["resolution"], "corrected");
    // Neither the same invoice, nor another, nor more of the same, tells again.
    import(&site, "invoice.csv", &invoice);
    import(&site, "invoice.csv", &format!("date,cost\n{day},500\n"));
    site.upstream
        .script(|seen| vec![completion(seen.number, &tokens(10, 600_000))]);
    site.chat(&chat("tokens", "hi")).send().await.expect(200);
    tokio::time::sleep(Duration::from_millis(2200)).await;
    assert_eq!(told(&site), (1, 1));
    drop(second);
}

async fn an_invoice_that_differs_is_told_to_those_who_called(store: Store) {
    let site = Site::new(store).await;
    site.workspace("Idle");
    for _ in 0..10 {
        site.chat(&chat("dear", "hi")).send().await.expect(200);
    }
    let first: Value = serde_json::from_str(site.export("usage").lines().next().unwrap()).unwrap();
    let day = first["createdAt"].as_str().unwrap()[..10].to_owned();
    // Within the threshold, then above it.
    let file = format!("{{\"date\":\"{day}\",\"cost\":1.299999}}");
    let agrees = import(&site, "a.jsonl", &file);
    assert_eq!(
        (&agrees["days"][0]["verdict"], &agrees["days"][0]["meteredUsd"]),
        (&json!("agrees"), &json!("0.3")),
        "{agrees:#}"
    );
    let file = file.replace("1.299999", "13e-1");
    let dry = write(&site, "b.jsonl", &file);
    let args = [
        "drift",
        "import",
        dry.to_str().unwrap(),
        "--provider",
        "up",
        "--dry-run",
    ];
    let dry = site.operate(&args);
    assert_eq!(
        (
            &dry["days"][0]["verdict"],
            &dry["days"][0]["detected"],
            &dry["dryRun"]
        ),
        (&json!("drifts"), &json!(0), &json!(true))
    );
    assert_eq!(told(&site), (0, 0));
    let drifts = import(&site, "b.jsonl", &file);
    assert_eq!(
        (&drifts["days"][0]["verdict"], &drifts["days"][0]["detected"]),
        (&json!("drifts"), &json!(1))
    );
    let told = site.events(DETECTED).pop().unwrap();
    assert_eq!(
        (&told["data"]["driftUsd"], &told["data"]["driftBps"]),
        (&json!("1"), &json!(33_333))
    );
    // Nobody called a provider of another name.
    let file = site.data.with_file_name("b.jsonl");
    let unknown = site.operate(&["drift", "import", file.to_str().unwrap(), "--provider", "upp"]);
    assert_eq!(unknown["days"][0]["verdict"], "nothing_metered");
    assert!(
        unknown["warnings"][0]
            .as_str()
            .unwrap()
            .contains("no call of provider upp")
    );
}

async fn every_form_of_an_export_says_the_same(store: Store) {
    let site = Site::new(store).await;
    let csv = "\u{feff}usage_date,line_item,total_cost,currency\r\n2024-11-01,\"chat, 1\",0.06,USD\r\n\
               2024-11-02,x,1,USD\r\n2024-11-01,y,5e-7,usd\r\n";
    let jsonl = "{\"day\":\"2024-11-01\",\"amount\":6e-2}\n{\"day\":\"2024-11-02\",\"amount\":\"1\"}\n\
                 {\"day\":\"2024-11-01\",\"amount\":0.0000005,\"model\":\"m\"}\n";
    let page = r#"{"object":"page","data":[
        {"object":"bucket","start_time":1730419200,"end_time":1730505600,"results":[
            {"object":"organization.costs.result","amount":{"value":0.06,"currency":"usd"},"line_item":null},
            {"object":"organization.costs.result","amount":{"value":5e-7,"currency":"usd"},"line_item":"x"}]},
        {"object":"bucket","start_time":1730505600,"end_time":1730592000,"results":[
            {"object":"organization.costs.result","amount":{"value":1.0,"currency":"usd"},"line_item":null}]}],
        "has_more":false,"next_page":null}"#;
    for (name, text) in [("a.csv", csv), ("b.jsonl", jsonl), ("c.json", page)] {
        let report = import(&site, name, text);
        let days: Vec<(&str, &str)> = report["days"]
            .as_array()
            .unwrap()
            .iter()
            .map(|day| (day["day"].as_str().unwrap(), day["importedUsd"].as_str().unwrap()))
            .collect();
        assert_eq!(days, [("2024-11-01", "0.060001"), ("2024-11-02", "1")], "{name}");
        assert_eq!(report["source"], name);
    }
    assert_eq!(
        site.database
            .number("SELECT SUM(amount) FROM drift_imports")
            .await,
        1_060_001
    );
}

async fn an_export_that_cannot_be_read_changes_nothing(store: Store) {
    let site = Site::new(store).await;
    for (text, complaint) in [
        (
            "date,cost\n2024-11-01,1\n2024-11-02,many\n",
            "line 3: cost: \"many\" is no amount",
        ),
        ("date,cost\n2024-11-01,-1\n", "the day's sum is below zero"),
        ("date,cost\n2224-11-01,1\n", "2224-11-01 has not begun"),
        ("", "the file is empty"),
    ] {
        let file = write(&site, "bad.csv", text);
        let args = ["drift", "import", file.to_str().unwrap(), "--provider", "up"];
        let (status, value, said) = operate(&site.config, &site.data, &args);
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(complaint), "{said}");
        assert!(value["error"].as_str().unwrap().contains(complaint), "{value}");
    }
    let file = write(&site, "good.csv", "date,cost\n2024-11-01,1\n");
    let args = ["drift", "import", file.to_str().unwrap(), "--provider", "a\tb"];
    assert_eq!(operate(&site.config, &site.data, &args).0.code(), Some(1));
    assert_eq!(
        site.database.number("SELECT COUNT(*) FROM drift_imports").await,
        0
    );
}
