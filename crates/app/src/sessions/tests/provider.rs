//! When a provider is asked for its keys, and what happens while it does not answer.

use futures_util::future::join_all;
use turnpike_core::errors::ErrorCode;

use super::*;

async fn refusal(verifier: &SessionVerifier, token: &str, clock: &Clock) -> Option<ErrorCode> {
    let verified = verifier.verify(token, clock.now()).await;
    verified.err().map(|error| error.code)
}

// Fault matrix 133
#[tokio::test]
async fn a_rotated_key_is_found_and_a_removed_one_forgotten() {
    let (old, new) = (Signer::new(1), Signer::new(2));
    let clock = Clock::new();
    let provider = Provider::publishing(&json!([old.jwk()]));
    let verifier = verifier(provider.clone(), &clock);
    assert_eq!(refusal(&verifier, &old.token(), &clock).await, None);
    provider.publish(&json!([old.jwk(), new.jwk()]));
    clock.advance(5);
    assert_eq!(refusal(&verifier, &old.token(), &clock).await, None);
    assert_eq!(provider.fetched(), 1);
    // The first reading was itself a request's.
    assert_eq!(
        refusal(&verifier, &new.token(), &clock).await,
        Some(ErrorCode::InvalidCredential)
    );
    clock.advance(60);
    assert_eq!(refusal(&verifier, &new.token(), &clock).await, None);
    assert_eq!(provider.fetched(), 2);
    // Keys are read again when they have grown old, and those that went are forgotten.
    provider.publish(&json!([new.jwk()]));
    clock.advance(299);
    verifier.refresh().await.unwrap();
    assert_eq!(
        (refusal(&verifier, &old.token(), &clock).await, provider.fetched()),
        (None, 2)
    );
    clock.advance(1);
    verifier.refresh().await.unwrap();
    assert_eq!(
        refusal(&verifier, &old.token(), &clock).await,
        Some(ErrorCode::InvalidCredential)
    );
    assert_eq!(refusal(&verifier, &new.token(), &clock).await, None);
}

// Fault matrix 123, 133
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_unknown_names_asks_once_a_minute() {
    let (good, bad) = (Signer::new(1), Signer::new(2));
    let clock = Clock::new();
    let provider = Arc::new(Provider {
        slow: true,
        ..Provider::default()
    });
    provider.publish(&json!([good.jwk()]));
    let verifier = Arc::new(verifier(provider.clone(), &clock));
    verifier.refresh().await.unwrap();
    assert_eq!(provider.fetched(), 1);
    for minute in 1..=3 {
        let storm = (0..200).map(|number| {
            let mut header = bad.header();
            header["kid"] = json!(format!("{number}"));
            let token = bad.sign(&header, &claims(&json!({})));
            let (verifier, now) = (verifier.clone(), clock.now());
            tokio::spawn(async move { verifier.verify(&token, now).await.unwrap_err().code })
        });
        for code in join_all(storm).await {
            assert_eq!(code.unwrap(), ErrorCode::InvalidCredential);
        }
        assert_eq!(provider.fetched(), 1 + minute);
        clock.advance(60);
    }
}

// Who goes away while the keys are being read does not keep them from the others.
#[tokio::test]
async fn a_reading_outlives_who_caused_it() {
    let signer = Signer::new(1);
    let clock = Clock::new();
    let provider = Arc::new(Provider {
        slow: true,
        ..Provider::default()
    });
    provider.publish(&json!([signer.jwk()]));
    let verifier = verifier(provider.clone(), &clock);
    let token = signer.token();
    let hasty = verifier.verify(&token, clock.now());
    let cut = tokio::time::timeout(std::time::Duration::from_millis(5), hasty).await;
    assert!(cut.is_err());
    assert_eq!(refusal(&verifier, &token, &clock).await, None);
    assert_eq!(provider.fetched(), 1);
}

// Fault matrix 133, 144
#[tokio::test]
async fn a_provider_that_is_down_opens_nothing_and_closes_nothing() {
    let (signer, other) = (Signer::new(1), Signer::new(2));
    let clock = Clock::new();
    let provider = Arc::new(Provider::default());
    let verifier = verifier(provider.clone(), &clock);
    let unavailable = Some(ErrorCode::ServiceUnavailable);
    assert!(verifier.refresh().await.is_err());
    for _ in 0..10 {
        assert_eq!(refusal(&verifier, &signer.token(), &clock).await, unavailable);
    }
    assert_eq!(provider.fetched(), 2);
    // What is no token is told so even then.
    assert_eq!(
        refusal(&verifier, "garbage", &clock).await,
        Some(ErrorCode::InvalidCredential)
    );
    provider.publish(&json!([signer.jwk()]));
    clock.advance(5);
    assert_eq!(refusal(&verifier, &signer.token(), &clock).await, None);
    // It goes again: the keys go on working, though they have grown old.
    provider.go_down();
    clock.advance(3000);
    verifier.refresh().await.unwrap();
    assert_eq!(refusal(&verifier, &signer.token(), &clock).await, None);
    assert_eq!(
        refusal(&verifier, &other.token(), &clock).await,
        Some(ErrorCode::InvalidCredential)
    );
    // Not for ever: a key that was withdrawn meanwhile would work as long.
    clock.advance(24 * 3600);
    assert!(verifier.refresh().await.is_err());
    assert_eq!(refusal(&verifier, &signer.token(), &clock).await, unavailable);
}

// Fault matrix 133
#[tokio::test]
async fn a_set_without_a_usable_key_replaces_none() {
    let signer = Signer::new(1);
    let clock = Clock::new();
    let provider = Provider::publishing(&json!([signer.jwk()]));
    let verifier = verifier(provider.clone(), &clock);
    assert_eq!(refusal(&verifier, &signer.token(), &clock).await, None);
    let mut foreign = signer.jwk();
    foreign["alg"] = json!("RSA-OAEP");
    provider.publish(&json!([foreign]));
    clock.advance(400);
    verifier.refresh().await.unwrap();
    assert_eq!(refusal(&verifier, &signer.token(), &clock).await, None);
}
