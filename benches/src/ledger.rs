//! The ledger without HTTP: durable pairs of hold and capture, as a gateway's call makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use turnpike_core::ids::{CallId, CommandId, ExternalUserId, TenantId};
use turnpike_core::ledger::command::{Capture, Grant, GrantSource, NewHold, OutcomeKind, StoredOutcome};
use turnpike_core::ledger::hold::CallSubject;
use turnpike_core::ledger::{Action, Command, Payer, TenantStatus};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::pricing::Charge;
use turnpike_core::time::Timestamp;
use turnpike_core::usage::Usage;
use turnpike_store::{AuditRow, Store, Tenant, TenantSettings};
use uuid::Uuid;

use crate::Result;
use crate::clock::{monotonic_ns, unix_millis};

/// What is held for a call, in µUSD.
const HOLD: Micros = Micros::new(60);
/// What it costs in the end: 20 prompt and 50 completion tokens.
const COST: Micros = Micros::new(17);
/// Enough for a day of calls.
const FUNDS: Micros = Micros::new(1_000_000_000_000);
const ANSWER_BYTES: usize = 700;
const PRICE: &str = r#"{"rates":{"input":"0.14","output":"0.28"},"markup":{"bps":0,"flat":"0"}}"#;

/// Ids that grow with time, as the service's do.
#[derive(Debug)]
pub struct Ids {
    run: u32,
    next: AtomicU64,
}

impl Default for Ids {
    fn default() -> Self {
        Self {
            run: std::process::id(),
            next: AtomicU64::new(1),
        }
    }
}

impl Ids {
    pub(crate) fn next(&self, at: Timestamp) -> Uuid {
        let mut random = [0; 10];
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Spread over the bits, so that ids of one millisecond are in no order.
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if let Some((head, tail)) = random.split_first_chunk_mut::<8>() {
            *head = mixed.to_be_bytes();
            tail.copy_from_slice(&(self.run as u16).to_be_bytes());
        }
        uuid::Builder::from_unix_timestamp_millis(u64::try_from(at.millis()).unwrap_or_default(), &random)
            .into_uuid()
    }
}

/// Workspaces with credits, and who spends them.
pub struct Books {
    store: Arc<dyn Store>,
    ids: Ids,
    tenants: Vec<TenantId>,
    payers: Vec<(TenantId, Payer)>,
    subject: CallSubject,
    answer: Bytes,
}

/// A load of pairs.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// Callers.
    pub callers: usize,
    /// Counted part.
    pub duration: Duration,
    /// Of the payers, so many share the load; 1 = one hot account.
    pub accounts: usize,
    /// Whether the call is marked as dispatched between hold and capture, as the gateway does.
    pub mark: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct PairRun {
    /// Pairs done.
    pub pairs: u64,
    /// Of each pair, sorted, in nanoseconds.
    pub latencies: Vec<u64>,
    /// From the first to the last.
    pub elapsed_ns: u64,
}

impl PairRun {
    /// Pairs a second.
    pub fn rate(&self) -> f64 {
        self.pairs as f64 / (self.elapsed_ns.max(1) as f64 / 1e9)
    }
}

impl Books {
    /// Opens `tenants` workspaces on `store`, with `end_users` funded end users between them.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn open(store: Arc<dyn Store>, tenants: usize, end_users: usize) -> Result<Arc<Self>> {
        let mut books = Self {
            store,
            ids: Ids::default(),
            tenants: Vec::new(),
            payers: Vec::new(),
            subject: CallSubject {
                provider: "mock".into(),
                endpoint: "chat-completions".into(),
                model: Some("vendor-v4-flash".into()),
                streamed: false,
                credential: "key 018f0000-0000-7000-8000-000000000000".into(),
                attribution: None,
                price: PRICE.into(),
            },
            answer: Bytes::from(vec![b'x'; ANSWER_BYTES]),
        };
        for _ in 0..tenants.max(1) {
            books.open_tenant().await?;
        }
        for index in 0..end_users {
            let tenant = books
                .tenants
                .get(index % books.tenants.len())
                .copied()
                .ok_or("no workspace")?;
            books.payers.push((
                tenant,
                Payer::EndUser(ExternalUserId::parse(&format!("user-{index}"))?),
            ));
        }
        if books.payers.is_empty() {
            books.payers = books
                .tenants
                .iter()
                .map(|tenant| (*tenant, Payer::Pool))
                .collect();
        }
        let books = Arc::new(books);
        books.fund().await?;
        Ok(books)
    }

    async fn open_tenant(&mut self) -> Result<()> {
        let at = now();
        let id = TenantId(self.ids.next(at));
        let tenant = Tenant {
            id,
            name: "bench".to_owned(),
            status: TenantStatus::Active,
            credits_per_dollar: CreditsPerDollar::default(),
            settings: TenantSettings::default(),
            created_at: at,
        };
        let audit = AuditRow {
            id: self.ids.next(at),
            tenant: id,
            at,
            actor: "bench".to_owned(),
            action: "tenant.create",
            target: id.to_string(),
            before: None,
            after: None,
            origin: "bench".to_owned(),
        };
        self.store.insert_tenant(&tenant, &audit).await?;
        self.tenants.push(id);
        Ok(())
    }

    async fn fund(self: &Arc<Self>) -> Result<()> {
        let lanes: Vec<_> = (0..256)
            .map(|lane| {
                let books = self.clone();
                tokio::spawn(async move {
                    for (tenant, payer) in books.payers.iter().skip(lane).step_by(256) {
                        let grant = Grant {
                            to: payer.clone(),
                            amount: FUNDS,
                            source: GrantSource::ManualGrant,
                            reason: "bench".into(),
                            claim: None,
                        };
                        books.submit(*tenant, Action::Grant(grant)).await?;
                    }
                    Ok::<_, crate::Failure>(())
                })
            })
            .collect();
        for lane in lanes {
            lane.await??;
        }
        Ok(())
    }

    async fn submit(&self, tenant: TenantId, action: Action) -> Result<()> {
        let at = now();
        self.store
            .submit(Command {
                id: CommandId(self.ids.next(at)),
                tenant,
                at,
                action,
                note: None,
            })
            .await?;
        Ok(())
    }

    async fn pair(&self, (tenant, payer): &(TenantId, Payer), mark: bool) -> Result<()> {
        let at = now();
        let hold = NewHold {
            call: CallId(self.ids.next(at)),
            payer: payer.clone(),
            claim: None,
            loop_id: None,
            amount: HOLD,
            base: HOLD,
            subject: self.subject.clone(),
            instance: Uuid::nil(),
            deadline: at.plus_millis(600_000),
            token: None,
            authority: None,
        };
        let call = hold.reference();
        self.submit(*tenant, Action::Hold(Box::new(hold))).await?;
        if mark {
            self.submit(*tenant, Action::MarkDispatched(call.clone())).await?;
        }
        let capture = Capture {
            call,
            charge: Charge {
                base: COST,
                markup: Micros::ZERO,
                flat: Micros::ZERO,
                margin: Micros::ZERO,
                effective: COST,
            },
            usage: Some(Usage {
                input: 20,
                output: 50,
                ..Usage::default()
            }),
            drift: None,
            outcome: Some(StoredOutcome {
                kind: OutcomeKind::Success,
                body: Some(self.answer.clone()),
                expires_at: at.plus_millis(86_400_000),
            }),
        };
        self.submit(*tenant, Action::Capture(Box::new(capture))).await
    }

    /// Runs pairs as fast as `load.callers` can.
    ///
    /// # Errors
    /// When a pair fails: nothing here may be refused.
    pub async fn run(self: &Arc<Self>, load: Pairs) -> Result<PairRun> {
        let start = monotonic_ns();
        let end = start + load.duration.as_nanos() as u64;
        let callers: Vec<_> = (0..load.callers)
            .map(|caller| {
                let books = self.clone();
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    let mut draw = caller as u64;
                    loop {
                        let sent = monotonic_ns();
                        if sent >= end {
                            return Ok::<_, crate::Failure>(latencies);
                        }
                        // A linear congruential generator (Knuth): any account, each as likely.
                        draw = draw
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let accounts = load.accounts.clamp(1, books.payers.len());
                        let index = usize::try_from(draw >> 33).unwrap_or_default() % accounts;
                        let payer = books.payers.get(index).ok_or("no payer")?;
                        books.pair(payer, load.mark).await?;
                        latencies.push(monotonic_ns().saturating_sub(sent));
                    }
                })
            })
            .collect();
        let mut run = PairRun::default();
        for caller in callers {
            run.latencies.extend(caller.await??);
        }
        run.elapsed_ns = monotonic_ns().saturating_sub(start);
        run.pairs = run.latencies.len() as u64;
        run.latencies.sort_unstable();
        Ok(run)
    }

    /// How many accounts there are to spend from.
    pub fn payers(&self) -> usize {
        self.payers.len()
    }

    /// Audits every workspace; gives the number of transfers and what was found wrong.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn audit(&self) -> Result<(u64, Vec<String>)> {
        let (mut transfers, mut findings) = (0, Vec::new());
        for tenant in &self.tenants {
            let report = self.store.audit(*tenant, &|_rows| ()).await?;
            transfers += report.counts.transfers;
            findings.extend(report.findings);
        }
        Ok((transfers, findings))
    }
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(unix_millis())
}
