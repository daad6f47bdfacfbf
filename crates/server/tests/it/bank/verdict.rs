//! What the books have at the end of the bank's day, held against what its clients were told.

use std::collections::BTreeMap;

use http::Method;
use serde_json::Value;

use super::board::{About, Board, Session};
use super::client::{Entry, Said};
use crate::harness::{Reply, micros, receipt};

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_else(|| panic!("no {name}: {row}"))
}

fn usd(row: &Value, name: &str) -> i64 {
    micros(text(row, name))
}

fn rows(export: &str) -> Vec<Value> {
    export
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Everything that the books and the stand-ins show.
struct Books {
    entries: Vec<Value>,
    /// Calls by the key in their attribution.
    calls: BTreeMap<String, Vec<Value>>,
    /// How often the provider saw each key.
    sent: BTreeMap<String, usize>,
    completed: BTreeMap<String, usize>,
}

impl Books {
    fn read(board: &Board) -> Self {
        let site = &board.shop;
        let mut calls = BTreeMap::<String, Vec<Value>>::new();
        for call in rows(&site.export("usage")) {
            let named: Value = serde_json::from_str(text(&call, "attribution")).unwrap();
            calls.entry(text(&named, "k").to_owned()).or_default().push(call);
        }
        let mut sent = BTreeMap::<String, usize>::new();
        for seen in site.upstream.seen() {
            let said = seen.text();
            let key = if seen.path.ends_with("/fetch") {
                text(&seen.json(), "id").to_owned()
            } else {
                said.trim_start_matches("failing ").to_owned()
            };
            *sent.entry(key).or_default() += 1;
        }
        let mut completed = BTreeMap::<String, usize>::new();
        for event in site.events("credits.topup.completed") {
            let session = text(&event["data"], "reference").to_owned();
            *completed.entry(session).or_default() += 1;
        }
        Self {
            entries: rows(&site.ledger()),
            calls,
            sent,
            completed,
        }
    }

    /// Entries of these kinds with this reference.
    fn of<'a>(&'a self, kinds: &'a [&str], reference: &'a str) -> impl Iterator<Item = &'a Value> {
        let entries = self.entries.iter();
        entries.filter(move |entry| kinds.contains(&text(entry, "type")) && entry["reference"] == reference)
    }

    fn count(&self, kinds: &[&str]) -> usize {
        let entries = self.entries.iter();
        entries
            .filter(|entry| kinds.contains(&text(entry, "type")))
            .count()
    }

    /// What went into an account, less what left it.
    fn balance(&self, account: &str) -> i64 {
        let side = |entry: &Value, name: &str| i64::from(entry[name] == account) * usd(entry, "amountUsd");
        let entries = self.entries.iter();
        entries
            .map(|entry| side(entry, "credit") - side(entry, "debit"))
            .sum()
    }

    /// Gives what the call has cost.
    fn check_call(&self, key: &str, user: Option<&str>, reply: Option<&Reply>) -> i64 {
        let none = Vec::new();
        let calls = self.calls.get(key).unwrap_or(&none);
        // A hold that was never sent frees its key again: it expired with its process, and cost nothing.
        let unsent = |call: &&Value| text(call, "state") == "expired" && usd(call, "chargedUsd") == 0;
        let calls: Vec<&Value> = if calls.len() > 1 {
            calls.iter().filter(|call| !unsent(call)).collect()
        } else {
            calls.iter().collect()
        };
        assert!(calls.len() <= 1, "{key} is there twice: {calls:?}");
        assert!(
            self.sent.get(key).copied().unwrap_or_default() <= 1,
            "{key} was sent twice"
        );
        let cost = |call: &&Value| usd(call, "chargedUsd") - usd(call, "refundedUsd");
        let cost: i64 = calls.iter().map(cost).sum();
        let Some(reply) = reply else {
            assert_eq!(cost, 0, "{key} failed and was charged: {calls:?}");
            return 0;
        };
        let call = calls.first().unwrap_or_else(|| panic!("{key} is lost"));
        assert_eq!(call["externalUserId"].as_str(), user, "{key}");
        assert!(cost > 0, "{key} was done for nothing: {call}");
        if reply.status == 200 {
            assert_eq!(call["callId"].as_str(), reply.header("x-svc-call-id"), "{key}");
            assert_eq!(receipt(reply).0, cost, "{key}: the receipt says otherwise");
        }
        let charged = self.entries.iter().filter(|entry| {
            entry["callId"] == call["callId"] && matches!(text(entry, "type"), "charge" | "margin")
        });
        let charged: i64 = charged.map(|entry| usd(entry, "amountUsd")).sum();
        assert_eq!(charged, usd(call, "chargedUsd"), "{key}: {call}");
        cost
    }

    async fn check_session(&self, board: &Board, session: &Session, refunds: &[&Reply]) {
        let id = &session.id;
        let shown = board.shop.topup(id).await;
        let times = usize::from(session.payment.is_some());
        let account = session.user.as_ref().map(|user| format!("end_user:{user}"));
        let account = account.as_deref().unwrap_or("pool");
        let bought: Vec<(&str, i64)> = self
            .of(&["topup"], id)
            .map(|entry| (text(entry, "credit"), usd(entry, "amountUsd")))
            .collect();
        assert_eq!(bought, vec![(account, session.cents * 10_000); times], "{shown}");
        assert_eq!(
            self.completed.get(id).copied().unwrap_or_default(),
            times,
            "{shown}"
        );
        let paid = matches!(text(&shown, "status"), "completed" | "refunded" | "disputed");
        assert_eq!(paid, times == 1, "{shown}");
        // Each refund that was answered, and no other.
        let listed = shown["refunds"].as_array().unwrap();
        for refund in refunds {
            let wanted = &refund.json()["refundId"];
            let found = listed
                .iter()
                .filter(|refund| refund["refundId"] == *wanted)
                .count();
            assert_eq!(found, 1, "{shown}");
        }
        assert_eq!(listed.len(), refunds.len(), "{shown}");
        let given: Vec<&Value> = listed
            .iter()
            .filter(|refund| refund["status"] == "succeeded")
            .collect();
        if let Some(payment) = &session.payment {
            assert_eq!(
                board.shop.stripe.refunds_of(payment).len(),
                given.len(),
                "{shown}"
            );
        }
        let given: i64 = given.iter().map(|refund| usd(refund, "creditsUsd")).sum();
        let taken = self
            .of(&["topup_refund"], id)
            .map(|entry| usd(entry, "amountUsd"));
        assert_eq!(taken.sum::<i64>(), given, "{shown}");
        let disputes = shown["disputes"].as_array().unwrap();
        assert_eq!(disputes.len(), usize::from(session.dispute.is_some()), "{shown}");
        if let Some(dispute) = &session.dispute {
            let status = &board.shop.stripe.object(dispute)["status"];
            assert_eq!(disputes[0]["status"], *status, "{shown}");
        }
    }
}

/// What was shown of an end user.
async fn shown(board: &Board, user: &str) -> Option<Value> {
    let reply = board.shop.about(Method::GET, user, "").send().await;
    (reply.status != 404).then(|| reply.expect(200).json())
}

/// Holds everything against everything; says how much there was.
pub(super) async fn check(board: &Board) -> String {
    let books = Books::read(board);
    let (log, sessions, tokens, grants) = {
        let state = board.state();
        (
            state.log.clone(),
            state.sessions.clone(),
            state.tokens.clone(),
            state.grants.clone(),
        )
    };
    let (mut ok, mut failed) = (BTreeMap::new(), BTreeMap::new());
    let (mut moves, mut opened) = (0, Vec::new());
    let mut refunds = BTreeMap::<&str, Vec<&Reply>>::new();
    let (mut spent, mut retired) = (BTreeMap::<&str, i64>::new(), Vec::new());
    for Entry { ask, said } in &log {
        let reply = match said {
            Said::Ok(reply) => Some(reply),
            Said::Failed(..) => None,
            Said::Unknown => panic!("{ask:?} was never learnt"),
        };
        let counts = if reply.is_some() { &mut ok } else { &mut failed };
        let kind = format!("{:?}", ask.about);
        let kind = kind.split(' ').next().unwrap().to_owned();
        let kind = match said {
            Said::Failed(status, code) => format!("{kind} {status} {code}"),
            Said::Ok(_) | Said::Unknown => kind,
        };
        *counts.entry(kind).or_insert(0) += 1;
        match (&ask.about, reply) {
            (About::Call { user, token }, _) => {
                let cost = books.check_call(&ask.key, user.as_deref(), reply);
                if let Some(token) = token {
                    *spent.entry(token.as_str()).or_default() += cost;
                }
            }
            (About::Move, _) => {
                let found: Vec<_> = books.of(&["allocate", "deallocate"], &ask.key).collect();
                let ids: Vec<&Value> = found.iter().map(|entry| &entry["id"]).collect();
                let document = reply.map(Reply::json);
                let wanted: Vec<&Value> = document.iter().map(|document| &document["entryId"]).collect();
                assert_eq!(ids, wanted, "{}: {said:?}", ask.key);
                moves += wanted.len();
            }
            (About::Topup, Some(reply)) => opened.push(text(&reply.json(), "sessionId").to_owned()),
            (About::Refund { session }, Some(reply)) => refunds.entry(session).or_default().push(reply),
            (About::Retire { user }, Some(_)) => retired.push(user.as_str()),
            (About::Topup | About::Refund { .. } | About::Retire { .. }, None) => {}
        }
    }
    assert_eq!(
        books.count(&["allocate", "deallocate"]),
        moves,
        "nobody asked for it"
    );
    let mut granted: Vec<&str> = grants.iter().map(String::as_str).collect();
    let given = books
        .entries
        .iter()
        .filter(|entry| text(entry, "type") == "grant");
    let mut given: Vec<&str> = given.map(|entry| text(entry, "id")).collect();
    // The first is the one that opened the bank.
    given.remove(0);
    granted.sort_unstable();
    given.sort_unstable();
    assert_eq!(given, granted);
    let distinct: std::collections::BTreeSet<&String> = opened.iter().collect();
    assert_eq!(distinct.len(), opened.len(), "two requests, one session");
    let rows = board.shop.database.number("SELECT COUNT(*) FROM topups").await;
    assert_eq!(
        usize::try_from(rows).unwrap(),
        opened.len(),
        "sessions that nobody was told of"
    );
    for session in &sessions {
        let refunds = refunds.get(session.id.as_str()).cloned().unwrap_or_default();
        books.check_session(board, session, &refunds).await;
    }
    for token in tokens.iter().filter(|token| token.ceiling.is_some()) {
        let spent = spent.get(token.token.as_str()).copied().unwrap_or_default();
        let ceiling = micros(token.ceiling.as_deref().unwrap());
        assert!(spent <= ceiling, "{spent} of {ceiling} with one token");
    }
    check_balances(board, &books, &retired).await;
    let dispatched = "SELECT COUNT(*) FROM holds WHERE dispatched_at IS NOT NULL";
    let dispatched = board.shop.database.number(dispatched).await;
    let sent = board.shop.upstream.count();
    assert!(
        sent <= usize::try_from(dispatched).unwrap(),
        "{sent} of {dispatched} calls"
    );
    let paid = sessions
        .iter()
        .filter(|session| session.payment.is_some())
        .count();
    assert!(moves > 0 && !opened.is_empty() && sent > 0);
    format!(
        "{} requests, ok {ok:?}, failed {failed:?}, {} grants, {paid} of {} sessions paid, {} retired, {} entries",
        log.len(),
        granted.len(),
        sessions.len(),
        retired.len(),
        books.entries.len(),
    )
}

/// What is shown of each balance is the sum of its entries, and who is retired has none.
async fn check_balances(board: &Board, books: &Books, retired: &[&str]) {
    let pool = board.shop.pool().await;
    assert_eq!(pool, (books.balance("pool"), 0));
    let mut owners = std::collections::BTreeSet::new();
    for entry in &books.entries {
        for side in ["debit", "credit"] {
            owners.extend(text(entry, side).strip_prefix("end_user:").map(str::to_owned));
        }
    }
    owners.extend(retired.iter().map(|user| (*user).to_owned()));
    for user in owners {
        let shown = shown(board, &user)
            .await
            .unwrap_or_else(|| panic!("{user} is unknown"));
        let entries = books.balance(&format!("end_user:{user}"));
        assert_eq!(usd(&shown, "usd"), entries, "{user}: {shown}");
        assert_eq!(
            shown["status"] == "retired",
            retired.contains(&user.as_str()),
            "{shown}"
        );
        assert!(shown["status"] != "retired" || entries == 0, "{shown}");
    }
}
