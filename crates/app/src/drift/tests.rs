//! Days go by over an in-memory store: what is measured, what is imported, and who is told how often.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use serde_json::{Value, json};
use turnpike_core::costs::DayCost;
use turnpike_core::ids::{CallId, CommandId, TenantId};
use turnpike_core::ledger::command::{
    Capture, Drift, DriftKind, Grant, GrantSource, NewHold, OutcomeKind, StoredOutcome,
};
use turnpike_core::ledger::hold::CallSubject;
use turnpike_core::ledger::{Action, Command, Payer, TenantStatus};
use turnpike_core::money::CreditsPerDollar;
use turnpike_core::pricing::Charge;
use turnpike_core::time::Day;
use turnpike_store::{
    AuditRow, Directory as _, EventFilter, Ledger as _, MemoryStore, Tenant, TenantSettings,
    WebhookEvents as _,
};
use uuid::Uuid;

use super::*;

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;

/// A clock that the test sets, and ids in a row.
struct Clock {
    now: AtomicI64,
    ids: AtomicU64,
}

impl Environment for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::Relaxed))
    }

    fn new_id(&self) -> Uuid {
        Uuid::from_u64_pair(0x7000, self.ids.fetch_add(1, Ordering::Relaxed))
    }

    fn random_32(&self) -> [u8; 32] {
        [7; 32]
    }
}

struct Bench {
    clock: Arc<Clock>,
    store: Arc<MemoryStore>,
    desk: DriftDesk,
    first: Day,
}

fn usd(dollars: i64) -> Micros {
    Micros::new(dollars * 1_000_000)
}

impl Bench {
    fn new() -> Self {
        let first = Day::new(20_700);
        let clock = Arc::new(Clock {
            now: AtomicI64::new(first.start().millis() + HOUR_MS),
            ids: AtomicU64::new(1),
        });
        let store = Arc::new(MemoryStore::new());
        let threshold = DriftThreshold {
            bps: 100,
            usd: usd(1),
        };
        Self {
            desk: DriftDesk::new(store.clone(), clock.clone(), threshold),
            clock,
            store,
            first,
        }
    }

    fn day(&self, number: i64) -> Day {
        Day::new(self.first.number() + number)
    }

    /// The clock shows `hours` o'clock of the day.
    fn at(&self, number: i64, hours: i64) {
        let now = self.day(number).start().millis() + hours * HOUR_MS;
        self.clock.now.store(now, Ordering::Relaxed);
    }

    async fn run(&self, tenant: TenantId, action: Action) {
        let command = Command {
            id: CommandId(self.clock.new_id()),
            tenant,
            at: self.clock.now(),
            action,
            note: None,
        };
        self.store.submit(command).await.unwrap();
    }

    async fn tenant(&self) -> TenantId {
        let id = TenantId(self.clock.new_id());
        let tenant = Tenant {
            id,
            name: id.to_string(),
            status: TenantStatus::Active,
            credits_per_dollar: CreditsPerDollar::default(),
            settings: TenantSettings::default(),
            created_at: self.clock.now(),
        };
        let audit = AuditRow {
            id: self.clock.new_id(),
            tenant: id,
            at: self.clock.now(),
            actor: "test".to_owned(),
            action: "test",
            target: "test".to_owned(),
            before: None,
            after: None,
            origin: "test".to_owned(),
        };
        self.store.insert_tenant(&tenant, &audit).await.unwrap();
        let grant = Grant {
            to: Payer::Pool,
            amount: usd(1_000_000),
            source: GrantSource::ManualGrant,
            reason: "test".into(),
            claim: None,
        };
        self.run(id, Action::Grant(grant)).await;
        id
    }

    /// A call of provider `up` that costs `cost` and loses `lost`, in µUSD.
    async fn call(&self, tenant: TenantId, cost: i64, lost: i64) {
        let hold = NewHold {
            call: CallId(self.clock.new_id()),
            payer: Payer::Pool,
            claim: None,
            loop_id: None,
            amount: Micros::new(cost + 5),
            base: Micros::new(cost),
            subject: CallSubject {
                provider: "up".into(),
                endpoint: "chat".into(),
                model: None,
                streamed: false,
                credential: "key:1".into(),
                attribution: None,
                price: "{}".into(),
            },
            instance: Uuid::nil(),
            deadline: self.clock.now().plus_millis(1000),
            token: None,
            authority: None,
        };
        let call = hold.reference();
        self.run(tenant, Action::Hold(Box::new(hold))).await;
        let capture = Capture {
            call,
            charge: Charge {
                base: Micros::new(cost),
                markup: Micros::new(5),
                flat: Micros::ZERO,
                margin: Micros::new(5),
                effective: Micros::new(cost + 5),
            },
            usage: None,
            drift: (lost > 0).then(|| Drift {
                kind: DriftKind::AboveHold,
                detail: "test".into(),
                loss: Micros::new(lost),
            }),
            outcome: Some(StoredOutcome {
                kind: OutcomeKind::Success,
                body: None,
                expires_at: self.clock.now(),
            }),
        };
        self.run(tenant, Action::Capture(Box::new(capture))).await;
    }

    async fn pass(&self) -> (u64, u64) {
        let swept = self.desk.reconcile().await.unwrap();
        (swept.detected, swept.resolved)
    }

    async fn import(&self, days: &[(i64, i64)]) -> Value {
        self.try_import(days, false).await.unwrap()
    }

    async fn try_import(&self, days: &[(i64, i64)], dry_run: bool) -> Result<Value, AppError> {
        let costs = ImportedCosts {
            provider: "up".to_owned(),
            source: "invoice.csv".to_owned(),
            days: days
                .iter()
                .map(|(number, micros)| DayCost {
                    day: self.day(*number),
                    usd: Micros::new(*micros),
                })
                .collect(),
            dry_run,
        };
        self.desk.import(&costs).await
    }

    /// The payloads of a tenant's events about drift, oldest first.
    async fn told(&self, tenant: TenantId) -> Vec<(String, Value)> {
        let mut events = self
            .store
            .list_events(tenant, &EventFilter::newest(10_000))
            .await
            .unwrap();
        events.retain(|event| event.kind.as_str().starts_with("credits.usage_drift."));
        events.reverse();
        let payload = |event: &turnpike_store::EventRow| serde_json::from_str(&event.data).unwrap();
        events
            .iter()
            .map(|event| (event.kind.as_str().to_owned(), payload(event)))
            .collect()
    }
}

// Fault matrix 82, I8, I12
#[tokio::test]
async fn ten_times_the_usage_for_an_hour_is_told_once_and_ends_once() {
    let bench = Bench::new();
    let tenant = bench.tenant().await;
    bench.at(0, 9);
    bench.call(tenant, 1_000_000, 0).await;
    assert_eq!(bench.pass().await, (0, 0));
    for _ in 0..3 {
        bench.call(tenant, 100_000, 900_000).await;
        bench.pass().await;
    }
    assert_eq!(bench.told(tenant).await.len(), 1);
    // Normal for the rest of the day and the next one; the passes go on.
    bench.at(0, 12);
    bench.call(tenant, 5_000_000, 0).await;
    assert_eq!(bench.pass().await, (0, 0));
    bench.at(1, 9);
    bench.call(tenant, 1_000_000, 0).await;
    assert_eq!((bench.pass().await, bench.pass().await), ((0, 0), (0, 0)));
    bench.at(2, 0);
    assert_eq!((bench.pass().await, bench.pass().await), ((0, 1), (0, 0)));
    let told = bench.told(tenant).await;
    assert_eq!(told.len(), 2);
    let (detected, resolved) = (&told[0], &told[1]);
    assert_eq!(detected.0, "credits.usage_drift.detected");
    assert_eq!(
        (
            &detected.1["provider"],
            &detected.1["meteredUsd"],
            &detected.1["providerUsd"]
        ),
        (&json!("up"), &json!("1.2"), &json!("3"))
    );
    assert_eq!(
        (&resolved.1["resolution"], &resolved.1["driftId"]),
        (&json!("agrees_again"), &detected.1["driftId"])
    );
}

#[tokio::test]
async fn a_day_that_is_diluted_to_below_the_threshold_ends_when_it_is_over() {
    let bench = Bench::new();
    let tenant = bench.tenant().await;
    bench.call(tenant, 1_000_000, 1_000_000).await;
    assert_eq!(bench.pass().await, (1, 0));
    bench.call(tenant, 200_000_000, 0).await;
    assert_eq!(bench.pass().await, (0, 0));
    bench.at(1, 0);
    assert_eq!(bench.pass().await, (0, 1));
    assert_eq!(bench.told(tenant).await[1].1["resolution"], "corrected");
}

#[tokio::test]
async fn what_was_lost_late_yesterday_is_found_today() {
    let bench = Bench::new();
    let tenant = bench.tenant().await;
    bench.call(tenant, 0, 1_000_000).await;
    bench.at(1, 3);
    assert_eq!((bench.pass().await, bench.pass().await), ((1, 0), (0, 0)));
    assert_eq!(bench.told(tenant).await[0].1["driftBps"], 10_000);
}

#[tokio::test]
async fn an_invoice_is_judged_in_sum_and_divided_among_the_workspaces() {
    let bench = Bench::new();
    let tenants = [bench.tenant().await, bench.tenant().await, bench.tenant().await];
    let idle = bench.tenant().await;
    for (tenant, cost) in tenants.iter().zip([60_000_001, 30_000_001, 1]) {
        bench.call(*tenant, cost, 0).await;
    }
    bench.at(1, 1);
    let report = bench.import(&[(0, 100_000_003)]).await;
    let day = &report["days"][0];
    assert_eq!(
        (
            &day["verdict"],
            &day["meteredUsd"],
            &day["driftUsd"],
            &day["detected"]
        ),
        (&json!("drifts"), &json!("90.000003"), &json!("10"), &json!(3))
    );
    assert_eq!(report["warnings"], json!([]));
    let mut sum = 0;
    for tenant in tenants {
        let told = bench.told(tenant).await;
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].1["driftBps"], 1111);
        let billed: Micros = serde_json::from_value(told[0].1["providerUsd"].clone()).unwrap();
        sum += billed.get();
    }
    assert_eq!(sum, 100_000_003);
    assert_eq!(bench.told(idle).await, []);
    // Nothing is repeated: neither by the job nor by the same file.
    assert_eq!(bench.pass().await, (0, 0));
    assert_eq!(bench.import(&[(0, 100_000_003)]).await["days"][0]["detected"], 0);
    // The corrected invoice ends it for all, and the wrong one again changes nothing.
    assert_eq!(bench.import(&[(0, 90_500_000)]).await["days"][0]["resolved"], 3);
    assert_eq!(bench.import(&[(0, 100_000_003)]).await["days"][0]["detected"], 0);
    bench.at(3, 0);
    assert_eq!(bench.pass().await, (0, 0));
    for tenant in tenants {
        assert_eq!(bench.told(tenant).await.len(), 2);
    }
}

#[tokio::test]
async fn what_an_invoice_showed_ends_by_a_later_invoice_and_not_by_the_answers() {
    let bench = Bench::new();
    let tenant = bench.tenant().await;
    for day in 0..4 {
        bench.at(day, 5);
        bench.call(tenant, 10_000_000, 0).await;
    }
    bench.at(4, 5);
    assert_eq!(bench.import(&[(0, 12_000_000)]).await["days"][0]["detected"], 1);
    for hour in 6..9 {
        bench.at(4, hour);
        assert_eq!(bench.pass().await, (0, 0));
    }
    let report = bench.import(&[(1, 12_000_000), (2, 10_050_000)]).await;
    let days = report["days"].as_array().unwrap();
    assert_eq!(
        (&days[0]["detected"], &days[1]["resolved"]),
        (&json!(1), &json!(2))
    );
    let resolutions: Vec<Value> = bench
        .told(tenant)
        .await
        .iter()
        .filter(|(kind, _)| kind.ends_with("resolved"))
        .map(|(_, data)| data["resolution"].clone())
        .collect();
    assert_eq!(resolutions, [json!("agrees_again"), json!("agrees_again")]);
}

#[tokio::test]
async fn an_older_invoice_that_comes_late_is_over_by_the_latest() {
    let bench = Bench::new();
    let tenant = bench.tenant().await;
    for day in 0..2 {
        bench.at(day, 5);
        bench.call(tenant, 10_000_000, 0).await;
    }
    bench.at(2, 5);
    bench.import(&[(1, 10_000_000)]).await;
    assert_eq!(bench.import(&[(0, 12_000_000)]).await["days"][0]["detected"], 1);
    assert_eq!(bench.told(tenant).await[1].1["resolution"], "agrees_again");
    assert_eq!(bench.pass().await, (0, 0));
}

#[tokio::test]
async fn what_the_answers_showed_ends_by_an_invoice_of_a_later_day() {
    let bench = Bench::new();
    let tenant = bench.tenant().await;
    bench.call(tenant, 1_000_000, 5_000_000).await;
    assert_eq!(bench.pass().await, (1, 0));
    bench.at(1, 5);
    bench.call(tenant, 1_000_000, 0).await;
    bench.at(2, 1);
    assert_eq!(bench.import(&[(1, 1_000_000)]).await["days"][0]["resolved"], 1);
    assert_eq!(bench.told(tenant).await[1].1["resolution"], "agrees_again");
}

#[tokio::test]
async fn an_invoice_speaks_instead_of_the_answers() {
    let bench = Bench::new();
    let tenant = bench.tenant().await;
    bench.call(tenant, 1_000_000, 5_000_000).await;
    bench.at(1, 1);
    // The provider did not bill what its answers said.
    assert_eq!(
        bench.import(&[(0, 1_000_000)]).await["days"][0]["verdict"],
        "agrees"
    );
    assert_eq!(bench.pass().await, (0, 0));
    assert_eq!(bench.told(tenant).await, []);
}

#[tokio::test]
async fn a_day_under_way_is_compared_as_it_stands_and_measured_again() {
    let bench = Bench::new();
    let tenant = bench.tenant().await;
    bench.at(0, 8);
    bench.call(tenant, 2_000_000, 0).await;
    let report = bench.import(&[(0, 2_000_000)]).await;
    assert_eq!(
        (&report["days"][0]["verdict"], &report["days"][0]["dayIsOver"]),
        (&json!("agrees"), &json!(false))
    );
    assert_eq!(report["warnings"].as_array().unwrap().len(), 1);
    // What came afterwards is not held against it.
    bench.call(tenant, 50_000_000, 0).await;
    bench.at(1, 1);
    assert_eq!(bench.pass().await, (0, 0));
    // And what the answers show still counts.
    bench.at(1, 2);
    bench.call(tenant, 1_000_000, 1_000_000).await;
    bench.import(&[(1, 900_000)]).await;
    assert_eq!(bench.pass().await, (1, 0));
}

#[tokio::test]
async fn imports_that_mean_nothing_are_refused_or_said() {
    let bench = Bench::new();
    let tenant = bench.tenant().await;
    bench.at(1, 1);
    let refused = bench.try_import(&[(2, 1)], false).await.unwrap_err();
    assert!(refused.message.contains("has not begun"), "{refused}");
    let report = bench.import(&[(0, 5_000_000)]).await;
    assert_eq!(report["days"][0]["verdict"], "nothing_metered");
    assert!(
        report["warnings"][0]
            .as_str()
            .unwrap()
            .contains("no call of provider up")
    );
    // A dry run keeps nothing.
    bench.at(0, 5);
    bench.call(tenant, 1_000_000, 0).await;
    bench.at(1, 1);
    let dry = bench.try_import(&[(0, 9_000_000)], true).await.unwrap();
    assert_eq!(
        (&dry["days"][0]["verdict"], &dry["days"][0]["detected"]),
        (&json!("drifts"), &json!(0))
    );
    assert_eq!(bench.told(tenant).await, []);
    let kept = bench
        .desk
        .store
        .find_drift_import("up", bench.day(0))
        .await
        .unwrap();
    assert_eq!(kept.unwrap().amount, Micros::new(5_000_000));
    // The next pass judges the kept one, until the day is settled, and then no more.
    assert_eq!(bench.pass().await, (1, 0));
    assert_eq!(
        bench
            .desk
            .store
            .list_pending_drift_imports(9)
            .await
            .unwrap()
            .len(),
        1
    );
    bench.clock.now.fetch_add(DAY_MS, Ordering::Relaxed);
    assert_eq!(bench.pass().await, (0, 0));
    assert_eq!(bench.desk.store.list_pending_drift_imports(9).await.unwrap(), []);
}
