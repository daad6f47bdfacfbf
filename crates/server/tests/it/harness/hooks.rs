//! Webhooks: a receiver that takes, refuses or keeps waiting, and what a test asks of endpoints and events.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use super::upstream::answer;
use super::{Reply, Seen, Setup, Site, Step, Store, Upstream, eventually};

/// The path of endpoints.
pub const ENDPOINTS: &str = "/api/credits/webhooks/endpoints";
/// The path of events.
pub const HOOK_EVENTS: &str = "/api/credits/webhooks/events";
/// What a call of model `flat` brings, besides a changed balance.
pub const BURNED: &str = "credits.burn.completed";

/// Every type there is, in the order of the specification.
pub const ALL_TYPES: [&str; 12] = [
    "credits.topup.completed",
    "credits.topup.failed",
    "credits.burn.completed",
    "credits.burn.failed",
    "credits.refund.issued",
    "credits.dispute.opened",
    "credits.dispute.closed",
    "credits.balance.changed",
    "credits.balance.low",
    "credits.account.frozen",
    "credits.usage_drift.detected",
    "credits.usage_drift.resolved",
];

impl Setup {
    /// Webhooks may go to this machine, and nobody waits long for anything.
    #[must_use]
    pub fn hooked(self) -> Self {
        self.set("webhooks.allow_loopback", true)
            .set("webhooks.poll_ms", 20)
    }

    /// Seconds before each attempt.
    #[must_use]
    pub fn schedule(self, delays: &[i64]) -> Self {
        self.set("webhooks.schedule", delays.to_vec())
    }
}

/// Takes messages.
#[derive(Clone)]
pub struct Receiver {
    /// The server behind it.
    pub server: Upstream,
}

/// A message as it arrived.
#[derive(Clone, Debug)]
pub struct Message(pub Seen);

impl Receiver {
    /// One that takes everything.
    pub async fn start() -> Self {
        let server = Upstream::start().await;
        server.always(vec![answer(200, &[], b"{}")]);
        Self { server }
    }

    /// One that answers everything so.
    pub async fn answering(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let receiver = Self::start().await;
        receiver.answers(status, headers, body);
        receiver
    }

    /// Answers everything so from now on.
    pub fn answers(&self, status: u16, headers: &[(&str, &str)], body: &[u8]) {
        self.server.always(vec![answer(status, headers, body)]);
    }

    /// Does this with everything from now on.
    pub fn does(&self, steps: Vec<Step>) {
        self.server.always(steps);
    }

    /// Where it is.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    /// What has arrived so far.
    pub fn messages(&self) -> Vec<Message> {
        self.server.seen().into_iter().map(Message).collect()
    }

    /// What has arrived at a path so far.
    pub fn at(&self, path: &str) -> Vec<Message> {
        let mut messages = self.messages();
        messages.retain(|message| message.0.path == path);
        messages
    }

    /// What has arrived once it is so much; more is a failure.
    pub async fn arrived(&self, count: usize) -> Vec<Message> {
        let what = format!("{count} messages arrive");
        let messages = eventually(&what, || async {
            let messages = self.messages();
            (messages.len() >= count).then_some(messages)
        })
        .await;
        assert_eq!(messages.len(), count);
        messages
    }
}

impl Message {
    /// A header; it is there once.
    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        let mut found = self.0.headers.iter().filter(|(other, _)| other == name);
        let (_, value) = found.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(found.next().is_none(), "{name} is there twice");
        value
    }

    /// The id of the event.
    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// The body.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.0.body).unwrap()
    }

    /// How many signatures it carries.
    pub fn signatures(&self) -> usize {
        self.header("webhook-signature").split(' ').count()
    }

    /// Whether a receiver with this secret believes it.
    pub fn is_signed_by(&self, secret: &str) -> bool {
        let mut headers = HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_str(self.header(name)).unwrap(),
            );
        }
        Webhook::new(secret)
            .unwrap()
            .verify(&self.0.body, &headers)
            .is_ok()
    }
}

/// An endpoint as it was made.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Its id.
    pub id: String,
    /// Signs what it is sent.
    pub secret: String,
}

impl Hook {
    /// Its path.
    pub fn path(&self) -> String {
        format!("{ENDPOINTS}/{}", self.id)
    }

    /// The path of something that is done to it.
    pub fn below(&self, what: &str) -> String {
        format!("{ENDPOINTS}/{}/{what}", self.id)
    }
}

impl Site {
    /// A gateway whose webhooks may go to this machine.
    pub async fn hooked(store: Store) -> Self {
        Setup::new(store).hooked().start().await
    }

    /// Adds an endpoint for some types of event, or for all.
    pub async fn hook(&self, url: &str, types: Option<&[&str]>) -> Hook {
        let body = json!({ "url": url, "eventTypes": types });
        let made = self.post(ENDPOINTS, &body).send().await.expect(201).json();
        let text = |name: &str| made["endpoint"][name].as_str().unwrap().to_owned();
        Hook {
            id: text("id"),
            secret: text("secret"),
        }
    }

    /// Changes an endpoint.
    pub async fn change_hook(&self, hook: &Hook, change: &Value) -> Reply {
        let patch = self.client.request(Method::PATCH, &hook.path()).bearer(&self.key);
        patch.json(change).send().await
    }

    /// An endpoint as it is shown.
    pub async fn shown_hook(&self, hook: &Hook) -> Value {
        self.get(&hook.path()).send().await.expect(200).json()["endpoint"].clone()
    }

    /// Removes an endpoint.
    pub async fn unhook(&self, hook: &Hook) -> Reply {
        let delete = self
            .client
            .request(Method::DELETE, &hook.path())
            .bearer(&self.key);
        delete.send().await
    }

    /// A page of events.
    pub async fn event_page(&self, query: &str) -> Value {
        let path = format!("{HOOK_EVENTS}?{query}");
        self.get(&path).send().await.expect(200).json()
    }

    /// The id of the newest event of a type.
    pub async fn newest(&self, kind: &str) -> String {
        let page = self.event_page(&format!("limit=1&type={kind}")).await;
        page["data"][0]["id"].as_str().expect("there is one").to_owned()
    }

    /// An event with its attempts.
    pub async fn event(&self, id: &str) -> Value {
        let path = format!("{HOOK_EVENTS}/{id}");
        self.get(&path).send().await.expect(200).json()["event"].clone()
    }

    /// The attempts of an event.
    pub async fn attempts(&self, id: &str) -> Vec<Value> {
        self.event(id).await["deliveries"].as_array().unwrap().clone()
    }

    /// The attempts of an event once there are so many that are over.
    pub async fn ended(&self, id: &str, count: usize) -> Vec<Value> {
        let what = format!("{count} attempts have ended");
        eventually(&what, || async {
            let attempts = self.attempts(id).await;
            let over =
                |attempt: &&Value| !matches!(attempt["status"].as_str(), Some("pending" | "delivering"));
            (attempts.iter().filter(over).count() >= count).then_some(attempts)
        })
        .await
    }

    /// Tells an event again.
    pub async fn replay(&self, id: &str, body: &Value) -> Reply {
        self.post(&format!("{HOOK_EVENTS}/{id}/replay"), body)
            .send()
            .await
    }

    /// Makes a call that is charged, and gives the id of the event that tells of it.
    pub async fn burn(&self) -> String {
        self.chat(&super::chat("flat", "hi")).send().await.expect(200);
        self.newest(BURNED).await
    }
}

/// What attempts are, as `number status`.
pub fn statuses(attempts: &[Value]) -> Vec<String> {
    let line = |attempt: &Value| format!("{} {}", attempt["attempt"], attempt["status"].as_str().unwrap());
    attempts.iter().map(line).collect()
}

/// A time of an answer, in milliseconds.
#[track_caller]
pub fn millis(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_else(|| panic!("no time: {value}"));
    text.parse::<turnpike_core::time::Timestamp>().unwrap().millis()
}
