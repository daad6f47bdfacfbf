//! The whole way of a grant, on a store in memory: what its tokens open, and when they stop.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use turnpike_core::access::{KeyPepper, Role};
use turnpike_core::errors::ErrorCode;
use turnpike_store::{AgentFilter, Agents as _, MemoryStore, Tenant};

use super::*;
use crate::agents::Audience;
use crate::auth::Authenticator;
use crate::providers::Shelf;
use crate::testing::{Clock, member, tenant};
use crate::tokens::{KeyVault, VaultSettings};

const URL: &str = "https://svc.example";
const CALLBACK: &str = "https://app.example/cb";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

struct Bench {
    clock: Arc<Clock>,
    store: Arc<MemoryStore>,
    tenant: Tenant,
    desk: OAuthDesk,
    authenticator: Authenticator,
    client: String,
}

fn parameters(pairs: &[(&str, &str)]) -> Parameters {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(own).collect()
}

impl Bench {
    async fn new() -> Self {
        let (clock, store) = (Clock::new(), Arc::new(MemoryStore::new()));
        let tenant = tenant(&store, &clock).await;
        let (pepper, brand): (_, Arc<str>) = (KeyPepper::new(b"one"), "svc".into());
        let settings = VaultSettings {
            master: pepper.derive("signing keys"),
            audience: URL.to_owned(),
            issuer: URL.to_owned(),
            publish_lead_ms: 0,
            rotate_after_ms: i64::MAX,
        };
        let vault = Arc::new(KeyVault::new(store.clone(), clock.clone(), settings));
        let agents = Arc::new(AgentDesk::new(
            store.clone(),
            clock.clone(),
            pepper.clone(),
            brand.clone(),
            Arc::new(Shelf::new(Vec::new())),
        ));
        let desk = OAuthDesk::new(
            store.clone(),
            clock.clone(),
            agents,
            pepper.clone(),
            brand.clone(),
            URL,
            true,
        )
        .unwrap();
        let registered = format!(r#"{{"redirect_uris":["{CALLBACK}"]}}"#);
        let registered = desk.register(registered.as_bytes()).await.unwrap();
        Self {
            authenticator: Authenticator::new(store.clone(), pepper, brand, vault),
            client: registered["client_id"].as_str().unwrap().to_owned(),
            clock,
            store,
            tenant,
            desk,
        }
    }

    /// A code that an owner agreed to.
    async fn code(&self) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
        let asked = parameters(&[
            ("response_type", "code"),
            ("client_id", &self.client),
            ("redirect_uri", CALLBACK),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let (sealed, _) = self.desk.begin(&asked).await.unwrap();
        let choice = Choice {
            external_user_id: String::new(),
            max_usd: "1".to_owned(),
            max_usd_per_call: "0.1".to_owned(),
            days: "1".to_owned(),
        };
        let owner = member(&self.tenant, Role::Owner);
        let url = self.desk.agree(&owner, &sealed, &choice).await.unwrap();
        let (_, query) = url.split_once('?').unwrap();
        url::form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name == "code")
            .unwrap()
            .1
            .into_owned()
    }

    async fn redeem(&self, code: &str) -> Result<Value, OAuthError> {
        self.desk
            .exchange(&parameters(&[
                ("grant_type", "authorization_code"),
                ("client_id", &self.client),
                ("code", code),
                ("redirect_uri", CALLBACK),
                ("code_verifier", VERIFIER),
            ]))
            .await
    }

    async fn present(&self, token: &str, audience: Audience<'_>) -> Result<(), ErrorCode> {
        let now = self.clock.now();
        let actor = self.authenticator.agent(token, audience, now).await;
        actor.map(drop).map_err(|error| error.code)
    }
}

#[tokio::test]
async fn an_access_token_opens_its_resource_for_an_hour() {
    let bench = Bench::new().await;
    // The membership is looked up again when the code is redeemed.
    assert!(bench.redeem(&bench.code().await).await.is_err());
    crate::testing::join(&bench.store, &bench.tenant, Role::Owner, &bench.clock).await;
    let tokens = bench.redeem(&bench.code().await).await.unwrap();
    let access = tokens["access_token"].as_str().unwrap();
    let resource = bench.desk.resource();
    let mcp = Audience::Resource(&resource);
    assert_eq!(bench.present(access, mcp).await, Ok(()));
    for other in [Audience::Api, Audience::Resource("https://other.example/mcp")] {
        assert_eq!(
            bench.present(access, other).await,
            Err(ErrorCode::InvalidCredential)
        );
    }
    let refresh = tokens["refresh_token"].as_str().unwrap();
    assert_eq!(
        bench.present(refresh, mcp).await,
        Err(ErrorCode::InvalidCredential)
    );
    bench.clock.pass(3_599_999);
    assert_eq!(bench.present(access, mcp).await, Ok(()));
    bench.clock.pass(1);
    assert_eq!(
        bench.present(access, mcp).await,
        Err(ErrorCode::CredentialExpired)
    );
}

#[tokio::test]
async fn what_was_revoked_is_seen_within_a_second() {
    let bench = Bench::new().await;
    crate::testing::join(&bench.store, &bench.tenant, Role::Owner, &bench.clock).await;
    let tokens = bench.redeem(&bench.code().await).await.unwrap();
    let access = tokens["access_token"].as_str().unwrap();
    let resource = bench.desk.resource();
    let mcp = Audience::Resource(&resource);
    assert_eq!(bench.present(access, mcp).await, Ok(()));
    let gone = parameters(&[("token", access)]);
    bench.desk.revoke(&gone).await.unwrap();
    bench.clock.pass(1_000);
    assert_eq!(
        bench.present(access, mcp).await,
        Err(ErrorCode::CredentialRevoked)
    );
    let filter = AgentFilter {
        payer: None,
        before: None,
        limit: 10,
    };
    let agents = bench.store.list_agents(bench.tenant.id, &filter).await.unwrap();
    let [agent] = agents.as_slice() else {
        panic!("{agents:?}")
    };
    // The ledger knows it, so that no call of another node slips through.
    assert!(agent.token.revoked_at.is_some());
    assert_eq!(agent.token.max_per_call.unwrap().to_string(), "0.1");
}

#[tokio::test]
async fn a_code_and_a_request_last_for_their_time() {
    let bench = Bench::new().await;
    crate::testing::join(&bench.store, &bench.tenant, Role::Owner, &bench.clock).await;
    let code = bench.code().await;
    bench.clock.pass(60_000);
    assert!(bench.redeem(&code).await.is_err());
    let unused = bench
        .desk
        .register(br#"{"redirect_uris":["https://a.example/"]}"#)
        .await
        .unwrap();
    bench.clock.pass(24 * 3_600_000);
    let asked = parameters(&[("client_id", unused["client_id"].as_str().unwrap())]);
    assert!(matches!(bench.desk.begin(&asked).await, Err(Refusal::Here(_))));
}
