//! The built-in identity by a clock that the test turns.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use turnpike_store::{Directory as _, MemoryStore, People as _};
use uuid::Uuid;

use super::*;
use crate::sessions::LocalPeople as _;

const URL: &str = "https://pay.example/";
const PASSWORD: &str = "a quiet harbour";

/// Time that stands still, and randomness that never repeats.
struct Clock {
    now: AtomicI64,
    drawn: AtomicU64,
}

impl Environment for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::Relaxed))
    }

    fn new_id(&self) -> Uuid {
        Uuid::from_u64_pair(0x0190_a0b0_0000_7000, self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    fn random_32(&self) -> [u8; 32] {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        KeyPepper::new(b"test").derive(&number.to_string())
    }
}

struct World {
    clock: Arc<Clock>,
    store: Arc<MemoryStore>,
    desk: PeopleDesk,
}

fn world(public_url: Option<&str>) -> World {
    let clock = Arc::new(Clock {
        now: AtomicI64::new(1_790_000_000_500),
        drawn: AtomicU64::new(0),
    });
    let store = Arc::new(MemoryStore::new());
    let desk = PeopleDesk::new(store.clone(), clock.clone(), KeyPepper::new(b"x"), public_url).unwrap();
    World { clock, store, desk }
}

/// The requests of a person who comes from home.
fn home() -> RequestOrigin {
    RequestOrigin {
        address: "192.0.2.1".parse().unwrap(),
        text: "POST /identity from 192.0.2.1".into(),
    }
}

fn secret(text: &str) -> Zeroizing<String> {
    Zeroizing::new(text.to_owned())
}

impl World {
    fn pass(&self, secs: i64) {
        self.clock.now.fetch_add(secs * 1000, Ordering::Relaxed);
    }

    /// The code that an app shows now for `text`.
    fn code(&self, text: &str) -> String {
        let key = totp_rs::Secret::try_from_base32(text.replace(' ', "")).unwrap();
        let totp = totp_rs::Builder::new().with_secret(key).build_noncompliant();
        let secs = u64::try_from(self.clock.now().millis() / 1000).unwrap();
        totp.generate(secs).to_string()
    }

    /// Somebody who joins by the first link: subject, secret and recovery codes.
    async fn join(&self, login: &str) -> (String, String, Vec<String>) {
        let link = self.desk.first_start().await.unwrap().unwrap();
        let (_, token) = link.split_once("token=").unwrap();
        let begun = self
            .desk
            .begin_joining(token, login, secret(PASSWORD))
            .await
            .unwrap();
        let code = self.code(&begun.secret.text);
        let done = self
            .desk
            .finish_enrolment(&begun.ticket, &code, &home())
            .await
            .unwrap();
        (done.signed_in.subject, begun.secret.text, done.recovery_codes)
    }
}

#[tokio::test]
async fn the_first_start_makes_a_workspace_and_one_link_until_somebody_joins() {
    let world = world(Some(URL));
    let first = world.desk.first_start().await.unwrap().unwrap();
    assert!(
        first.starts_with("https://pay.example/identity/join?token="),
        "{first}"
    );
    let (subject, _, _) = world.join("ada").await;
    let tenants = world.store.list_tenants().await.unwrap();
    assert_eq!((tenants.len(), &*tenants[0].name), (1, "My workspace"));
    let profile = world.desk.profile(&subject).await.unwrap().unwrap();
    assert_eq!(profile.workspaces[0].0.role, turnpike_core::access::Role::Owner);
    assert_eq!(world.desk.first_start().await.unwrap(), None);
    let (_, token) = first.split_once("token=").unwrap();
    let refused = world.desk.begin_joining(token, "bob", secret(PASSWORD)).await;
    assert_eq!(refused.unwrap_err().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn where_others_sign_people_in_there_is_no_link() {
    let world = world(None);
    assert_eq!(world.desk.first_start().await.unwrap(), None);
    assert!(world.store.list_tenants().await.unwrap().is_empty());
}

#[tokio::test]
async fn five_failures_make_wait_and_a_success_forgets_them() {
    let world = world(Some(URL));
    let (subject, text, recovery) = world.join("ada").await;
    let confirm = async |code: &str| world.desk.confirm(&subject, code, world.clock.now()).await;
    // The code of the enrolment is used up.
    assert_eq!(
        confirm(&world.code(&text)).await.unwrap_err().code,
        ErrorCode::ValidationError
    );
    for _ in 1..5 {
        assert_eq!(
            confirm("000000").await.unwrap_err().code,
            ErrorCode::ValidationError
        );
    }
    for wait in [30, 60, 120, 300, 900, 900] {
        let waits = confirm(&recovery[0]).await.unwrap_err();
        assert_eq!(
            (waits.code, waits.retry_after_secs),
            (ErrorCode::RateLimited, Some(wait + 1))
        );
        // Who knows the password is kept from the second factor alone.
        let login = world
            .desk
            .begin_sign_in("ADA", secret(PASSWORD), home().address)
            .await;
        login.unwrap();
        world.pass(i64::try_from(wait).unwrap());
        assert_eq!(
            confirm("nonsense").await.unwrap_err().code,
            ErrorCode::ValidationError
        );
    }
    world.pass(900);
    confirm(&world.code(&text)).await.unwrap();
    for _ in 0..4 {
        assert_eq!(
            confirm("000000").await.unwrap_err().code,
            ErrorCode::ValidationError
        );
    }
    confirm(&recovery[0]).await.unwrap();
    assert_eq!(
        confirm(&recovery[0]).await.unwrap_err().code,
        ErrorCode::ValidationError
    );
    let nobody = world.desk.confirm("nobody", "000000", world.clock.now()).await;
    assert_eq!(nobody.unwrap_err().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn forms_are_good_for_their_time_and_sessions_until_they_are_ended() {
    let world = world(Some(URL));
    let (subject, text, recovery) = world.join("ada").await;
    let desk = &world.desk;
    let begin = async || {
        let begun = desk.begin_sign_in("ada", secret(PASSWORD), home().address);
        begun.await.unwrap()
    };
    let late = begin().await;
    world.pass(300);
    let over = desk.finish_sign_in(&late, &world.code(&text)).await.unwrap_err();
    assert_eq!(over.message, ticket::OVER);
    let signed_in = desk
        .finish_sign_in(&begin().await, &world.code(&text))
        .await
        .unwrap();
    let issued = |signed_in: &SignedIn| signed_in.at.millis().div_euclid(1000);
    let first = issued(&signed_in);
    assert!(desk.is_current(&subject, first).await.unwrap());

    // Signed out, what was begun before does not go on, and who signs in at once has a session that counts.
    let begun = begin().await;
    desk.end_sessions(&subject).await.unwrap();
    assert!(!desk.is_current(&subject, first).await.unwrap());
    let over = desk.finish_sign_in(&begun, &recovery[0]).await.unwrap_err();
    assert_eq!(over.message, ticket::OVER);
    let again = desk.finish_sign_in(&begin().await, &recovery[0]).await.unwrap();
    assert_eq!(issued(&again), first + 1);
    assert!(desk.is_current(&subject, issued(&again)).await.unwrap());
    assert!(desk.is_current("of-another-provider", 0).await.unwrap());

    // An enrolment is good for half an hour.
    desk.reset("ada", "test").await.unwrap();
    let url = desk.reset("Ada", "test").await.unwrap()["url"]
        .as_str()
        .unwrap()
        .to_owned();
    let (_, token) = url.split_once("token=").unwrap();
    let begun = desk.begin_reset(token, secret("another harbour")).await.unwrap();
    world.pass(1800);
    let code = world.code(&begun.secret.text);
    assert_eq!(
        desk.finish_enrolment(&begun.ticket, &code, &home())
            .await
            .unwrap_err()
            .message,
        ticket::OVER
    );
    world.pass(86_400);
    assert_eq!(desk.resetting(token).await.unwrap_err().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn who_knows_a_login_keeps_nobody_waiting_elsewhere() {
    let world = world(Some(URL));
    let (subject, text, _) = world.join("ada").await;
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let sign_in = async |from: &str, password: &str| {
        let begun = world
            .desk
            .begin_sign_in("ada", secret(password), address(from))
            .await;
        begun.map_err(|error| error.code)
    };
    for last in 1..=5 {
        let from = format!("2001:db8::{last}");
        assert_eq!(sign_in(&from, "wrong").await, Err(ErrorCode::InvalidCredential));
    }
    // There the right password waits, too; the next network has tries of its own, and so has the second factor.
    assert_eq!(
        sign_in("2001:db8::9", PASSWORD).await,
        Err(ErrorCode::RateLimited)
    );
    world.pass(30);
    assert_eq!(
        sign_in("2001:db8::9", "wrong").await,
        Err(ErrorCode::InvalidCredential)
    );
    assert_eq!(
        sign_in("2001:db8::9", PASSWORD).await,
        Err(ErrorCode::RateLimited)
    );
    let ticket = sign_in("2001:db8:0:1::9", PASSWORD).await.unwrap();
    let done = world.desk.finish_sign_in(&ticket, &world.code(&text)).await;
    assert_eq!(done.unwrap().subject, subject);

    // From all networks together there is a ceiling, which a success lifts. Who is turned away by it has not tried.
    let attempt = async |number: u32| {
        let from = std::net::Ipv4Addr::from(0x0A00_0000 + number).into();
        let now = world.clock.now();
        world.desk.take_password_attempt("ada", from, now).await
    };
    for number in 0..100 {
        assert!(attempt(number).await.is_ok(), "{number}");
    }
    for _ in 0..10 {
        let refused = attempt(100).await.err().unwrap();
        assert_eq!(
            (refused.code, refused.retry_after_secs),
            (ErrorCode::RateLimited, Some(31))
        );
    }
    world.pass(30);
    assert!(attempt(100).await.is_ok());
    assert!(attempt(101).await.is_err());
    world.pass(30);
    sign_in("192.0.2.1", PASSWORD).await.unwrap();
    assert!(attempt(101).await.is_ok());
}

#[tokio::test]
async fn what_was_chosen_before_ends_with_a_reset() {
    let world = world(Some(URL));
    let (subject, text, _) = world.join("ada").await;
    let desk = &world.desk;
    let begin = async |password: &str| {
        let begun = desk.begin_sign_in("ada", secret(password), home().address).await;
        begun.map_err(|error| (error.code, error.message))
    };
    let wrong = begin("wrong").await.unwrap_err();
    let reset = async || {
        let url = desk.reset("ada", "test").await.unwrap()["url"].clone();
        url.as_str().unwrap().split_once("token=").unwrap().1.to_owned()
    };
    reset().await;
    assert_eq!(begin(PASSWORD).await.unwrap_err(), wrong);
    // A link that nobody uses leaves everything as it was.
    world.pass(86_400);
    let ticket = begin(PASSWORD).await.unwrap();
    let old = desk.finish_sign_in(&ticket, &world.code(&text)).await.unwrap();
    let second = |signed_in: &SignedIn| signed_in.at.millis().div_euclid(1000);
    assert!(desk.is_current(&subject, second(&old)).await.unwrap());

    let token = reset().await;
    let begun = desk.begin_reset(&token, secret("another harbour")).await.unwrap();
    world.pass(60);
    let now = second(&old) + 60;
    let code = world.code(&begun.secret.text);
    let done = desk
        .finish_enrolment(&begun.ticket, &code, &home())
        .await
        .unwrap();
    assert!(!desk.is_current(&subject, now).await.unwrap());
    assert_eq!(second(&done.signed_in), now + 1);
    assert!(desk.is_current(&subject, now + 1).await.unwrap());
    assert!(begin(PASSWORD).await.is_err());
    begin("another harbour").await.unwrap();
}

#[tokio::test]
async fn nothing_secret_is_in_what_is_logged() {
    let world = world(Some(URL));
    world.desk.first_start().await.unwrap();
    let tenant = world.store.list_tenants().await.unwrap()[0].id;
    let invite = async || {
        let invited = world
            .desk
            .invitations
            .invite_first_owner(tenant, "test", 60)
            .await;
        invited.unwrap()
    };
    let invited = invite().await.unwrap();
    assert_eq!(format!("{invited:?}"), "[redacted]");
    let url = invited.url.unwrap();
    let (_, token) = url.split_once("token=").unwrap();
    let begun = world
        .desk
        .begin_joining(token, "ada", secret(PASSWORD))
        .await
        .unwrap();
    assert_eq!(format!("{begun:?} {:?}", begun.secret), "[redacted] [redacted]");
    let code = world.code(&begun.secret.text);
    let done = world
        .desk
        .finish_enrolment(&begun.ticket, &code, &home())
        .await
        .unwrap();
    assert_eq!(format!("{done:?}"), "[redacted]");
    let person = world.store.find_login("ada").await.unwrap().unwrap();
    let shown = format!("{person:?}");
    assert!(
        shown.contains("credentials: [redacted]") && !shown.contains("argon2"),
        "{shown}"
    );
    assert!(invite().await.is_none());
}
