//! What the clients of the bank know of each other, and the requests that they make.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use http::Method;
use serde_json::{Value, json};

use super::client::Entry;
use crate::harness::payments::{POOL_TOPUPS, Shop, TOPUPS, events_url};
use crate::harness::people::user_path;
use crate::harness::{CHAT, Client, Sender, Service, TOOL, chat, chat_stream, eventually};

/// Where one process is.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) client: Client,
    pub(super) events: String,
}

impl Node {
    pub(super) fn of(service: &Service) -> Self {
        Self {
            client: service.client(),
            events: events_url(service),
        }
    }
}

/// What a request is about; the verdict depends on it.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// A call, known by its attribution.
    Call {
        user: Option<String>,
        token: Option<String>,
    },
    Move,
    Topup,
    Refund {
        session: String,
    },
    Retire {
        user: String,
    },
}

/// A request that can be made again.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) about: About,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) bearer: String,
    pub(super) key: String,
    pub(super) body: Value,
}

impl Ask {
    pub(super) fn sender(&self, client: &Client) -> Sender {
        let sender = client
            .request(self.method.clone(), &self.path)
            .bearer(&self.bearer);
        let sender = match &self.about {
            About::Call { user, token } => {
                let named = sender.header("x-svc-attribution", json!({ "k": self.key }).to_string());
                // A token names its end user itself.
                match user {
                    Some(user) if token.is_none() => named.paid_by(user),
                    _ => named,
                }
            }
            About::Retire { .. } => return sender,
            About::Move | About::Topup | About::Refund { .. } => sender,
        };
        sender.once(&self.key).json(&self.body)
    }
}

/// A token of an end user.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) user: String,
    pub(super) token: String,
    pub(super) jti: String,
    pub(super) ceiling: Option<String>,
}

/// A session, what the processor names it, and its payment.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) user: Option<String>,
    pub(super) cents: i64,
    /// Told to the page: paid, declined, expired.
    pub(super) closed: bool,
    pub(super) payment: Option<String>,
    pub(super) dispute: Option<String>,
}

impl Session {
    /// What a customer does on a page.
    pub(super) fn visit(&mut self, shop: &Shop, kind: u32) {
        let page = shop.page(&self.id);
        let stripe = &shop.stripe;
        match kind {
            0 => stripe.expire(&page),
            1 => {
                stripe.pay_later(&page);
                stripe.async_fail(&page);
            }
            2 => {
                self.payment = Some(stripe.pay_later(&page));
                stripe.async_succeed(&page);
            }
            _ => self.payment = Some(stripe.pay(&page)),
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    generations: BTreeMap<usize, u32>,
    pub(super) tokens: Vec<Token>,
    pub(super) sessions: Vec<Session>,
    /// Entry ids of the operator's grants.
    pub(super) grants: Vec<String>,
    pub(super) log: Vec<Entry>,
}

pub(super) struct Board {
    pub(super) shop: Shop,
    pub(super) owner: String,
    pub(super) users: usize,
    nodes: Mutex<[Node; 2]>,
    state: Mutex<State>,
}

impl Board {
    pub(super) fn new(shop: Shop, owner: String, users: usize) -> Arc<Self> {
        let node = Node::of(shop.service());
        Arc::new(Self {
            shop,
            owner,
            users,
            nodes: Mutex::new([node.clone(), node]),
            state: Mutex::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn node(&self, number: usize) -> Node {
        self.nodes.lock().unwrap()[number].clone()
    }

    pub(super) fn set_second(&self, node: Node) {
        self.nodes.lock().unwrap()[1] = node;
    }

    pub(super) fn note(&self, log: Vec<Entry>) {
        self.state().log.extend(log);
    }

    pub(super) fn name(&self, slot: usize) -> String {
        let generation = self.state().generations.get(&slot).copied().unwrap_or_default();
        format!("user-{slot}.{generation}")
    }

    /// The end user of `slot` has left; the next one has another name.
    pub(super) fn replace(&self, slot: usize, name: &str) {
        if self.name(slot) == name {
            *self.state().generations.entry(slot).or_default() += 1;
        }
    }

    fn ask(&self, about: About, path: String, key: &str, body: Value) -> Ask {
        Ask {
            about,
            method: Method::POST,
            path,
            bearer: self.shop.key.clone(),
            key: key.to_owned(),
            body,
        }
    }

    pub(super) fn moving(&self, way: &str, user: &str, usd: &str, key: &str) -> Ask {
        let path = user_path(user, &format!("/{way}"));
        self.ask(About::Move, path, key, json!({ "usd": usd, "reference": key }))
    }

    /// A call of a kind, paid by the pool, by `user`, or by the user of `token`.
    pub(super) fn calling(&self, kind: u32, user: Option<String>, token: Option<&Token>, key: &str) -> Ask {
        let (path, body) = match kind {
            0 => (TOOL, json!({ "id": key })),
            1 | 2 => (CHAT, chat_stream("flat", key)),
            3 => (CHAT, chat("dear", key)),
            4 => (CHAT, chat("tokens", key)),
            5 => (CHAT, chat("flat", &format!("failing {key}"))),
            _ => (CHAT, chat("flat", key)),
        };
        let about = About::Call {
            user: token.map(|token| token.user.clone()).or(user),
            token: token.map(|token| token.token.clone()),
        };
        let mut ask = self.ask(about, path.to_owned(), key, body);
        if let Some(token) = token {
            ask.bearer.clone_from(&token.token);
        }
        ask
    }

    pub(super) fn opening(&self, usd: i64, token: Option<&Token>, key: &str) -> Ask {
        let path = if token.is_some() {
            "/api/credits/me/topups"
        } else {
            POOL_TOPUPS
        };
        let mut ask = self.ask(
            About::Topup,
            path.to_owned(),
            key,
            json!({ "usd": usd.to_string() }),
        );
        if let Some(token) = token {
            ask.bearer.clone_from(&token.token);
        }
        ask
    }

    pub(super) fn refunding(&self, session: &str, usd: &str, key: &str) -> Ask {
        let about = About::Refund {
            session: session.to_owned(),
        };
        let path = format!("{TOPUPS}/{session}/refunds");
        self.ask(about, path, key, json!({ "usd": usd }))
    }

    pub(super) fn retiring(&self, user: &str) -> Ask {
        let about = About::Retire {
            user: user.to_owned(),
        };
        let mut ask = self.ask(about, user_path(user, ""), "", Value::Null);
        ask.method = Method::DELETE;
        ask.bearer.clone_from(&self.owner);
        ask
    }

    /// Disputes, of which none was decided yet.
    pub(super) fn undecided(&self) -> Vec<String> {
        let state = self.state();
        state
            .sessions
            .iter()
            .filter_map(|session| session.dispute.clone())
            .collect()
    }

    /// Delivers what the processor still has to tell, until all of it is taken.
    pub(super) async fn deliver_rest(&self) {
        eventually("all is told", || async {
            self.shop.stripe.deliver_all(&self.node(0).events).await;
            self.shop.stripe.events().is_empty().then_some(())
        })
        .await;
    }

    /// Gives the question of a token that may be revoked by now a credential that is not.
    pub(super) async fn renew(&self, ask: &mut Ask, client: &Client) {
        if ask.bearer == self.shop.key || ask.bearer == self.owner {
            return;
        }
        if let About::Call { token, .. } = &mut ask.about {
            *token = None;
            ask.bearer.clone_from(&self.shop.key);
            return;
        }
        let tokens = self.state().tokens.clone();
        let known = tokens.iter().find(|known| known.token == ask.bearer).unwrap();
        let path = user_path(&known.user, "/tokens");
        let asked = client.request(Method::POST, &path).bearer(&self.shop.key);
        let reply = asked.json(&json!({ "scopes": ["topup"] })).send().await;
        if reply.status == 201 {
            reply.json()["token"]
                .as_str()
                .unwrap()
                .clone_into(&mut ask.bearer);
        }
    }
}
