//! One client of the bank: does something at random and notes what it was told.

use std::sync::Arc;

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::board::{Ask, Board, Node, Session, Token};
use crate::harness::people::user_path;
use crate::harness::{Client, Reply, eventually, micros, operate};

/// What a client was told.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Ok(Reply),
    Failed(u16, String),
    /// No answer, or one that says that it is not known.
    Unknown,
}

/// A request and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) ask: Ask,
    pub(super) said: Said,
}

/// What an answer means. `again` when the question was asked before: then a stored failure is the outcome.
fn heard(answer: Result<Reply, String>, again: bool) -> Said {
    let Ok(reply) = answer else {
        return Said::Unknown;
    };
    match (reply.status, reply.code().as_str()) {
        (200 | 410, _) => Said::Ok(reply),
        (409, "IDEMPOTENCY_IN_PROGRESS") | (503, _) => Said::Unknown,
        (500.., _) if !again => Said::Unknown,
        (status, code) => Said::Failed(status, code.to_owned()),
    }
}

/// What two answers to one question mean together.
fn together(first: Said, second: Said) -> Said {
    match (first, second) {
        (Said::Ok(first), Said::Ok(second)) => {
            assert_eq!(first.body, second.body, "two answers to one question");
            Said::Ok(first)
        }
        (Said::Ok(reply), _) | (_, Said::Ok(reply)) => Said::Ok(reply),
        (Said::Unknown, _) | (_, Said::Unknown) => Said::Unknown,
        (failed @ Said::Failed(..), Said::Failed(..)) => failed,
    }
}

pub(super) struct Teller {
    board: Arc<Board>,
    random: StdRng,
    number: u64,
    next: u32,
    /// Answers that never arrived.
    pub(super) lost: usize,
    pub(super) log: Vec<Entry>,
}

impl Teller {
    pub(super) fn new(board: Arc<Board>, seed: u64, number: u64) -> Self {
        Self {
            board,
            random: StdRng::seed_from_u64(seed ^ (number << 20)),
            number,
            next: 0,
            lost: 0,
            log: Vec::new(),
        }
    }

    fn key(&mut self) -> String {
        self.next += 1;
        format!("c{}-{}", self.number, self.next)
    }

    fn node(&mut self) -> Node {
        let number = self.random.random_range(0..2);
        self.board.node(number)
    }

    fn recent<T: Clone>(&mut self, things: &[T]) -> Option<T> {
        let back = self.random.random_range(1..=12_usize).min(things.len());
        things.get(things.len() - back).cloned().filter(|_| back > 0)
    }

    /// Asks, now and then twice at once under the same key, and notes the answer.
    pub(super) async fn settle(&mut self, ask: Ask) -> Said {
        let sent = ask.sender(&self.node().client);
        let said = if self.random.random_ratio(1, 6) && !ask.key.is_empty() {
            let twin = ask.sender(&self.node().client);
            let (one, other) = tokio::join!(sent.try_send(), twin.try_send());
            self.lost += usize::from(one.is_err()) + usize::from(other.is_err());
            together(heard(one, false), heard(other, false))
        } else {
            let answer = sent.try_send().await;
            self.lost += usize::from(answer.is_err());
            heard(answer, false)
        };
        let entry = Entry {
            ask,
            said: said.clone(),
        };
        self.log.push(entry);
        said
    }

    pub(super) fn unknown(&self) -> usize {
        let lost = |entry: &&Entry| matches!(entry.said, Said::Unknown);
        self.log.iter().filter(lost).count()
    }

    /// Asks again what was not answered, under the same keys, until there is an answer.
    pub(super) async fn learn(&mut self) {
        let client = self.board.node(0).client;
        for entry in &mut self.log {
            if !matches!(entry.said, Said::Unknown) {
                continue;
            }
            let ask = &mut entry.ask;
            self.board.renew(ask, &client).await;
            entry.said = eventually("the outcome is known", || async {
                let said = heard(ask.sender(&client).try_send().await, true);
                (!matches!(said, Said::Unknown)).then_some(said)
            })
            .await;
        }
    }

    pub(super) async fn operate(&mut self) {
        let slot = self.random.random_range(0..self.board.users);
        let user = self.board.name(slot);
        match self.random.random_range(0..34) {
            0 => self.grant(&user).await,
            1..5 => self.move_credits(&user).await,
            5..16 => self.call(user).await,
            16..19 => self.mint(&user).await,
            19 => self.revoke().await,
            20..23 => self.buy().await,
            23..26 => self.visit_page().await,
            26..29 => self.deliver().await,
            29 | 30 => self.refund().await,
            31 => self.dispute(),
            _ => self.leave(slot, &user).await,
        }
    }

    async fn grant(&mut self, user: &str) {
        let usd = format!("0.{:02}", self.random.random_range(1..50));
        let board = self.board.clone();
        let user = self.random.random_ratio(2, 3).then(|| user.to_owned());
        let given = tokio::task::spawn_blocking(move || {
            let site = &board.shop;
            let mut args = vec!["credits", "grant", "--tenant", &site.tenant, "--usd", &usd];
            args.extend(["--reason", "bank"]);
            if let Some(user) = &user {
                args.extend(["--external-user-id", user]);
            }
            operate(&site.config, &site.data, &args)
        });
        let (status, granted, _) = given.await.unwrap();
        if status.success() {
            let entry = granted["entryId"].as_str().unwrap().to_owned();
            self.board.state().grants.push(entry);
        }
    }

    async fn move_credits(&mut self, user: &str) {
        let way = ["allocate", "deallocate"][self.random.random_range(0..2)];
        let usd = format!("0.{:06}", self.random.random_range(1..400_000));
        let key = self.key();
        let ask = self.board.moving(way, user, &usd, &key);
        let said = self.settle(ask.clone()).await;
        if let (Said::Ok(first), true) = (said, self.random.random_ratio(1, 3)) {
            let again = ask.sender(&self.node().client).try_send().await;
            if let Ok(again) = again {
                assert_eq!((again.status, &again.body), (200, &first.body), "{key}");
            }
        }
    }

    async fn call(&mut self, user: String) {
        let key = self.key();
        let kind = self.random.random_range(0..12);
        let tokens = self.board.state().tokens.clone();
        let ask = match self.random.random_range(0..5) {
            0 => self.board.calling(kind, None, None, &key),
            1 | 2 => self.board.calling(kind, Some(user), None, &key),
            _ => {
                let token = self.recent(&tokens);
                self.board.calling(kind, Some(user), token.as_ref(), &key)
            }
        };
        self.settle(ask).await;
    }

    async fn mint(&mut self, user: &str) {
        let ceiling =
            (self.random.random_ratio(1, 2)).then(|| format!("0.{:02}", self.random.random_range(1..9)));
        let mut body = json!({ "scopes": ["spend", "topup"] });
        if let Some(usd) = &ceiling {
            body["maxSpendUsd"] = json!(usd);
        }
        let path = user_path(user, "/tokens");
        let asked = self
            .node()
            .client
            .request(Method::POST, &path)
            .bearer(&self.board.shop.key);
        let Ok(reply) = asked.json(&body).try_send().await else {
            return;
        };
        if reply.status == 201 {
            let minted = reply.json();
            let text = |name: &str| minted[name].as_str().unwrap().to_owned();
            self.board.state().tokens.push(Token {
                user: user.to_owned(),
                token: text("token"),
                jti: text("jti"),
                ceiling,
            });
        }
    }

    /// Takes a token back; from then on no process takes it.
    async fn revoke(&mut self) {
        let tokens = self.board.state().tokens.clone();
        let Some(token) = self.recent(&tokens) else {
            return;
        };
        let path = user_path(&token.user, &format!("/tokens/{}", token.jti));
        let asked = self.node().client.request(Method::DELETE, &path);
        let Ok(reply) = asked.bearer(&self.board.shop.key).try_send().await else {
            return;
        };
        if reply.status == 200 {
            let key = self.key();
            let late = self.board.calling(6, None, Some(&token), &key);
            if let Said::Ok(reply) = self.settle(late).await {
                panic!("a revoked token was taken: {}", reply.text());
            }
        }
    }

    async fn buy(&mut self) {
        let tokens = self.board.state().tokens.clone();
        let token = self.recent(&tokens).filter(|_| self.random.random_ratio(2, 3));
        let (usd, key) = (self.random.random_range(1..9), self.key());
        let ask = self.board.opening(usd, token.as_ref(), &key);
        if let Said::Ok(reply) = self.settle(ask).await {
            self.board.state().sessions.push(Session {
                id: reply.json()["sessionId"].as_str().unwrap().to_owned(),
                user: token.map(|token| token.user),
                cents: usd * 100,
                closed: false,
                payment: None,
                dispute: None,
            });
        }
    }

    /// A customer pays, now and then twice; or fails to; or lets the page expire.
    async fn visit_page(&mut self) {
        let kind = self.random.random_range(0..8);
        let board = self.board.clone();
        let paid_twice = {
            let mut state = board.state();
            let Some(session) = state.sessions.iter_mut().find(|session| !session.closed) else {
                return;
            };
            session.closed = true;
            session.visit(&board.shop, kind);
            (kind == 3).then(|| (session.id.clone(), session.cents))
        };
        if let Some((id, cents)) = paid_twice {
            let processor = Client::new(board.shop.stripe.url().trim_start_matches("http://"));
            let form = format!(
                "amount={cents}&currency=usd&payment_method=pm_card_visa\
                 &metadata%5Bturnpike_session%5D={id}&metadata%5Bturnpike_offsession%5D=1"
            );
            let paid = processor.request(Method::POST, "/v1/payment_intents");
            let paid = paid.bearer("sk_test_canary").body(form).send().await;
            paid.expect(200);
        }
    }

    /// News in any order, twice, to either process; what is not taken waits again.
    async fn deliver(&mut self) {
        let stripe = self.board.shop.stripe.clone();
        let mut taken = Vec::new();
        let from = self.random.random_range(0..3);
        stripe.reorder(|events| {
            let from = from.min(events.len());
            taken = events.split_off(from);
            taken.reverse();
            while taken.len() > 8 {
                events.push(taken.pop().unwrap());
            }
        });
        for event in taken {
            let (one, other) = (self.node().events, self.node().events);
            let (first, second) = tokio::join!(stripe.deliver(&one, &event), stripe.deliver(&other, &event));
            if first != Some(200) && second != Some(200) {
                for status in [first, second].into_iter().flatten() {
                    assert_eq!(status, 503, "{event}");
                }
                stripe.reorder(|events| events.push(event.clone()));
            }
        }
    }

    async fn refund(&mut self) {
        let paid = self.sessions(|session| session.payment.is_some());
        let Some(session) = self.recent(&paid) else {
            return;
        };
        let cents = self.random.random_range(1..=session.cents);
        let (usd, key) = (format!("{}.{:02}", cents / 100, cents % 100), self.key());
        let ask = self.board.refunding(&session.id, &usd, &key);
        self.settle(ask).await;
    }

    fn dispute(&mut self) {
        let stripe = &self.board.shop.stripe;
        let mut state = self.board.state();
        let disputed = state
            .sessions
            .iter_mut()
            .find(|session| session.payment.is_some() && session.dispute.is_none());
        if let Some(session) = disputed {
            let payment = session.payment.as_deref().unwrap();
            session.dispute = Some(stripe.open_dispute(payment, session.cents));
        }
    }

    fn sessions(&self, wanted: impl Fn(&Session) -> bool) -> Vec<Session> {
        let state = self.board.state();
        state
            .sessions
            .iter()
            .filter(|session| wanted(session))
            .cloned()
            .collect()
    }

    /// Gives back what there is, and leaves. Half of them leave without giving back, which is refused.
    async fn leave(&mut self, slot: usize, user: &str) {
        if self.random.random_ratio(3, 4) {
            let path = user_path(user, "");
            let asked = self.node().client.request(Method::GET, &path);
            let Ok(shown) = asked.bearer(&self.board.shop.key).try_send().await else {
                return;
            };
            let usd = serde_json::from_slice::<Value>(&shown.body).unwrap_or_default()["usd"].clone();
            let usd = usd.as_str().unwrap_or("0").to_owned();
            if micros(&usd) > 0 {
                let key = self.key();
                let ask = self.board.moving("deallocate", user, &usd, &key);
                self.settle(ask).await;
            }
        }
        let ask = self.board.retiring(user);
        if let Said::Ok(_) = self.settle(ask).await {
            self.board.replace(slot, user);
        }
    }
}
