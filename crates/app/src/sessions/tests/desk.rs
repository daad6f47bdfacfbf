//! Step-up tokens and signing out, in memory.

use turnpike_core::access::Role;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::TenantStatus;
use turnpike_core::money::CreditsPerDollar;
use turnpike_store::{MemoryStore, Tenant, TenantSettings};

use super::*;
use crate::auth::{Actor, ActorCredential};
use crate::error::AppError;

/// Takes the code 123456, once.
#[derive(Default)]
struct Codes(AtomicUsize);

#[async_trait]
impl LocalPeople for Codes {
    async fn is_current(&self, _subject: &str, _issued_at: i64) -> Result<bool, AppError> {
        Ok(true)
    }

    async fn end_sessions(&self, _subject: &str) -> Result<(), AppError> {
        Ok(())
    }

    async fn take_code(&self, _subject: &str, code: &str, _now: Timestamp) -> Result<(), AppError> {
        if code == "123456" && self.0.fetch_add(1, Ordering::SeqCst) == 0 {
            return Ok(());
        }
        Err(AppError::new(ErrorCode::StepUpRequired, "the code is wrong"))
    }
}

struct Bench {
    clock: Arc<Clock>,
    signer: SessionSigner,
    desk: SessionDesk,
}

impl Bench {
    fn new() -> Self {
        let clock = Clock::new();
        let signer = own_signer(&clock);
        let verifier = SessionVerifier::builtin(&signer, factors());
        let store = Arc::new(MemoryStore::new());
        let pepper = KeyPepper::new(b"secret");
        let desk = SessionDesk::new(store, clock.clone(), pepper, "svc".into(), verifier);
        Self { clock, signer, desk }
    }

    async fn session(&self, subject: &str, age: i64, amr: &[&str]) -> (Actor, Session, String) {
        let now = self.clock.now();
        let new = NewSession {
            subject,
            auth_time: now.plus_millis(-age * 1000),
            amr,
            issued_at: now,
            lifetime_secs: 3600,
        };
        let token = self.signer.sign(&new).unwrap();
        let session = self.desk.authenticate(&token).await.unwrap();
        (member(subject, 1), session, token)
    }

    async fn step_up(&self, subject: &str, age: i64) -> String {
        let (actor, session, _) = self.session(subject, age, &["otp"]).await;
        let given = self.desk.step_up(&actor, &session, b"").await.unwrap();
        given["stepUpToken"].as_str().unwrap().to_owned()
    }
}

fn member(subject: &str, tenant: u128) -> Actor {
    let tenant = Tenant {
        id: TenantId(Uuid::from_u128(tenant)),
        name: "t".to_owned(),
        status: TenantStatus::Active,
        credits_per_dollar: CreditsPerDollar::default(),
        settings: TenantSettings::default(),
        created_at: at(0),
    };
    Actor {
        tenant: Arc::new(tenant),
        credential: ActorCredential::Member {
            subject: subject.into(),
            role: Role::Owner,
        },
        origin: "test".into(),
    }
}

fn code<T>(result: Result<T, AppError>) -> Option<ErrorCode> {
    result.err().map(|error| error.code)
}

const REQUIRED: Option<ErrorCode> = Some(ErrorCode::StepUpRequired);

// Fault matrix 137
#[tokio::test]
async fn a_step_up_token_raises_its_owners_sessions_in_its_workspace() {
    let bench = Bench::new();
    let (actor, base, _) = bench.session("alice", 0, &["pwd"]).await;
    let token = bench.step_up("alice", 100).await;
    let allowed = async |actor: &Actor, session: &Session, token: Option<&str>| {
        code(bench.desk.require_step_up(actor, session, token).await)
    };
    assert_eq!(allowed(&actor, &base, None).await, REQUIRED);
    assert_eq!(allowed(&actor, &base, Some(&token)).await, None);
    assert_eq!(allowed(&actor, &base, Some(&token)).await, None);
    let (other, session, _) = bench.session("bob", 0, &["pwd"]).await;
    assert_eq!(allowed(&other, &session, Some(&token)).await, REQUIRED);
    assert_eq!(allowed(&member("alice", 2), &base, Some(&token)).await, REQUIRED);
    let elsewhere = Session {
        issuer: "https://other.example".to_owned(),
        ..base.clone()
    };
    assert_eq!(allowed(&actor, &elsewhere, Some(&token)).await, REQUIRED);
    for bad in [
        "",
        "x",
        "svc_su_",
        &token[1..],
        &format!("{token}0"),
        &token.to_uppercase(),
    ] {
        assert_eq!(allowed(&actor, &base, Some(bad)).await, REQUIRED, "{bad}");
    }
    // Ten minutes after the factor was shown, not after the token was given.
    bench.clock.advance(499);
    assert_eq!(allowed(&actor, &base, Some(&token)).await, None);
    bench.clock.advance(1);
    assert_eq!(allowed(&actor, &base, Some(&token)).await, REQUIRED);
    assert_eq!(bench.desk.prune().await.unwrap(), 0);
    bench.clock.advance(3601);
    assert_eq!(bench.desk.prune().await.unwrap(), 1);
}

#[tokio::test]
async fn who_shows_no_fresh_factor_gets_no_token() {
    let bench = Bench::new();
    for (age, amr) in [(0, ["pwd"]), (700, ["otp"]), (600, ["otp"])] {
        let (actor, session, _) = bench.session("alice", age, &amr).await;
        assert_eq!(
            code(bench.desk.step_up(&actor, &session, b"").await),
            REQUIRED,
            "{age}"
        );
    }
    let (actor, session, _) = bench.session("alice", -30, &["otp"]).await;
    let given = bench.desk.step_up(&actor, &session, b"{}").await.unwrap();
    assert_eq!(given["expiresAt"], json!(at(NOW + 600)));
    for (body, expected) in [
        (r#"{"x":1}"#, ErrorCode::UnknownField),
        ("[]", ErrorCode::InvalidJson),
        (r#"{"code":5}"#, ErrorCode::ValidationError),
        (r#"{"code":""}"#, ErrorCode::ValidationError),
        (r#"{"code":"123456"}"#, ErrorCode::ValidationError),
    ] {
        let refused = bench.desk.step_up(&actor, &session, body.as_bytes()).await;
        assert_eq!(code(refused), Some(expected), "{body}");
    }
}

#[tokio::test]
async fn a_code_stands_for_a_second_factor_once() {
    let mut bench = Bench::new();
    bench.desk = bench.desk.of_people(Arc::new(Codes::default()));
    let (actor, base, _) = bench.session("alice", 700, &["pwd"]).await;
    let body = br#"{"code":"123456"}"#;
    let given = bench.desk.step_up(&actor, &base, body).await.unwrap();
    assert_eq!(given["expiresAt"], json!(at(NOW + 600)));
    let token = given["stepUpToken"].as_str().unwrap();
    assert!(
        bench
            .desk
            .require_step_up(&actor, &base, Some(token))
            .await
            .is_ok()
    );
    assert_eq!(code(bench.desk.step_up(&actor, &base, body).await), REQUIRED);
}

// Fault matrix 137
#[tokio::test]
async fn signing_out_ends_the_session_and_every_step_up_token() {
    let bench = Bench::new();
    let (actor, base, bearer) = bench.session("alice", 0, &["pwd"]).await;
    let (_, _, other) = bench.session("alice", 0, &["pwd"]).await;
    let tokens = [bench.step_up("alice", 0).await, bench.step_up("alice", 0).await];
    let bobs = bench.step_up("bob", 0).await;
    let unknown = bench.desk.sign_out(&base, br#"{"all":true}"#).await;
    assert_eq!(code(unknown), Some(ErrorCode::UnknownField));
    let out = bench.desk.sign_out(&base, b"").await.unwrap();
    assert_eq!(out, json!({ "success": true, "revokedStepUpTokens": 2 }));
    let ended = bench.desk.authenticate(&bearer).await;
    assert_eq!(code(ended), Some(ErrorCode::CredentialRevoked));
    let session = bench.desk.authenticate(&other).await.unwrap();
    for token in &tokens {
        let refused = bench.desk.require_step_up(&actor, &session, Some(token)).await;
        assert_eq!(code(refused), REQUIRED);
    }
    let (bob, session, _) = bench.session("bob", 0, &["pwd"]).await;
    assert!(
        bench
            .desk
            .require_step_up(&bob, &session, Some(&bobs))
            .await
            .is_ok()
    );
    // A token that was being given while its session ended falls with it.
    let late = bench.desk.step_up(&actor, &raised(&base), b"").await.unwrap();
    let late = late["stepUpToken"].as_str().unwrap();
    let refused = bench.desk.require_step_up(&actor, &base, Some(late)).await;
    assert_eq!(code(refused), REQUIRED);
}

fn raised(base: &Session) -> Session {
    Session {
        second_factor: true,
        ..base.clone()
    }
}
