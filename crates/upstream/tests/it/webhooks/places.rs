//! Where attempts go, and where they never go.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use turnpike_upstream::{DestinationError, Resolver, SystemResolver, WebhookSender};

use super::{local, parts, send, sender};
use crate::stand_in::{StandIn, reply};

const NOT_ALLOWED: (Option<u16>, Option<&str>, Option<&str>) = (None, Some("address is not allowed"), None);

/// Answers what it is told, in order, and an error when it is asked again.
#[derive(Debug, Default)]
struct Scripted {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
}

#[async_trait::async_trait]
impl Resolver for Scripted {
    async fn resolve(&self, _name: &str) -> io::Result<Vec<SocketAddr>> {
        let answer = self.answers.lock().unwrap().pop_front();
        let addresses = answer.ok_or_else(|| io::Error::other("SERVFAIL"))?;
        Ok(addresses.into_iter().map(|address| (address, 0).into()).collect())
    }
}

fn scripted(allow_loopback: bool, answers: &[&[&str]]) -> (WebhookSender, Arc<Scripted>) {
    let resolver = Arc::new(Scripted::default());
    for answer in answers {
        let addresses = answer.iter().map(|text| text.parse().unwrap()).collect();
        resolver.answers.lock().unwrap().push_back(addresses);
    }
    let names: Arc<dyn Resolver> = Arc::<Scripted>::clone(&resolver);
    (sender(allow_loopback, Duration::from_secs(20), names), resolver)
}

// Fault matrix 166
#[tokio::test]
async fn a_name_that_moves_inside_after_registration_is_not_connected_to() {
    let stand_in = StandIn::answering(reply(200, "text/plain", "")).await;
    let url = format!("https://rebind.example:{}/", stand_in.port());
    let (sender, resolver) = scripted(false, &[&["8.8.8.8"], &["127.0.0.1"], &["8.8.8.8", "127.0.0.1"]]);
    assert_eq!(sender.register(&url).await.unwrap().as_str(), url);
    for _ in 0..2 {
        assert_eq!(parts(&send(&sender, &url).await), NOT_ALLOWED);
    }
    // The fault was reached: every answer was used.
    assert!(resolver.answers.lock().unwrap().is_empty());
    assert_eq!(stand_in.connections(), 0);
}

// Fault matrix 166
#[tokio::test]
async fn a_resolver_that_fails_closes_the_door() {
    let (sender, _) = scripted(false, &[]);
    let url = "https://hook.example/";
    assert_eq!(sender.register(url).await, Err(DestinationError::Unresolved));
    assert_eq!(
        parts(&send(&sender, url).await),
        (None, Some("name resolution failed"), None)
    );
    let (sender, _) = scripted(false, &[&[], &[]]);
    assert_eq!(sender.register(url).await, Err(DestinationError::Unresolved));
    assert_eq!(
        parts(&send(&sender, url).await),
        (None, Some("name resolution failed"), None)
    );
}

// Fault matrix 166
#[tokio::test(start_paused = true)]
async fn a_resolver_that_hangs_closes_the_door() {
    #[derive(Debug)]
    struct Hanging;
    #[async_trait::async_trait]
    impl Resolver for Hanging {
        async fn resolve(&self, _name: &str) -> io::Result<Vec<SocketAddr>> {
            std::future::pending().await
        }
    }
    let sender = sender(false, Duration::from_secs(15), Arc::new(Hanging));
    let url = "https://hook.example/";
    assert_eq!(sender.register(url).await, Err(DestinationError::Unresolved));
    assert_eq!(
        parts(&send(&sender, url).await),
        (None, Some("connecting timed out"), None)
    );
}

// Fault matrix 165, 166
#[tokio::test]
async fn one_address_inside_refuses_a_name_at_registration_and_at_connecting() {
    let stand_in = StandIn::answering(reply(200, "text/plain", "")).await;
    let url = format!("https://hook.example:{}/", stand_in.port());
    for inside in [
        "127.0.0.1",
        "127.9.9.9",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe81::1",
        "febf::1",
        "fc00::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
        "2001:0:7f00:1::1",
    ] {
        for answer in [&[inside][..], &["8.8.8.8", inside], &[inside, "2606:4700::1111"]] {
            let (sender, resolver) = scripted(false, &[answer, answer]);
            let registered = sender.register(&url).await;
            assert_eq!(registered, Err(DestinationError::NotPublic), "{inside}");
            assert_eq!(parts(&send(&sender, &url).await), NOT_ALLOWED, "{inside}");
            assert!(resolver.answers.lock().unwrap().is_empty());
        }
    }
    assert_eq!(stand_in.connections(), 0);
}

// Fault matrix 165
#[tokio::test]
async fn addresses_inside_are_refused_at_sending_however_they_are_written() {
    let stand_in = StandIn::answering(reply(200, "text/plain", "")).await;
    let port = stand_in.port();
    let sender = sender(false, Duration::from_secs(20), Arc::new(SystemResolver));
    for host in [
        "127.0.0.1",
        "127.0.0.1.",
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0177.0.0.1",
        "0x7f.1",
        "127.1",
        "%31%32%37.0.0.1",
        "１２７.０.０.１",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "[::]",
        "localhost",
        "localhost.",
        "x.localhost",
    ] {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{port}/");
            assert_eq!(parts(&send(&sender, &url).await), NOT_ALLOWED, "{url}");
            assert!(sender.register(&url).await.is_err(), "{url}");
        }
    }
    for url in [
        "https://8.8.8.8:22/",
        "https://example.com:25/",
        "http://example.com/",
        "https://u:p@8.8.8.8/",
        "",
        "nonsense",
    ] {
        assert_eq!(parts(&send(&sender, url).await), NOT_ALLOWED, "{url}");
    }
    assert_eq!(stand_in.connections(), 0);
}

// Fault matrix 166
#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let chosen = StandIn::answering(reply(200, "text/plain", "")).await;
    // Asked a second time, the name would lead elsewhere.
    let (sender, resolver) = scripted(true, &[&["127.0.0.1"], &["127.0.0.2"]]);
    let url = format!("https://hook.localhost:{}/", chosen.port());
    // The stand-in speaks no TLS: reaching it is what counts.
    let attempt = send(&sender, &url).await;
    assert_eq!(parts(&attempt), (None, Some("TLS handshake failed"), None));
    assert_eq!(chosen.connections(), 1);
    assert_eq!(resolver.answers.lock().unwrap().len(), 1);

    let (sender, resolver) = scripted(true, &[&["127.0.0.1"]]);
    let url = format!("http://hook.localhost:{}/", chosen.port());
    assert!(send(&sender, &url).await.succeeded());
    assert_eq!(chosen.connections(), 2);
    assert!(resolver.answers.lock().unwrap().is_empty());
}

// Fault matrix 167
#[tokio::test]
async fn a_redirect_to_the_inside_is_a_failure_and_is_not_followed() {
    let internal = StandIn::answering(reply(200, "text/plain", "")).await;
    for status in [300, 301, 302, 303, 307, 308] {
        for location in [internal.url(), "/other".to_owned()] {
            let head =
                format!("HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 5\r\n\r\nmoved");
            let redirecting = StandIn::answering(head.into_bytes()).await;
            let attempt = send(&local(), &redirecting.url()).await;
            assert_eq!(
                parts(&attempt),
                (Some(status), Some("redirect not followed"), Some("moved"))
            );
            assert_eq!(redirecting.requests().len(), 1);
        }
    }
    assert_eq!(internal.connections(), 0);
}

#[tokio::test]
async fn loopback_is_for_development_and_opens_nothing_else() {
    let (sender, _) = scripted(
        true,
        &[
            &["127.0.0.1"],
            &["::1"],
            &["10.0.0.1"],
            &["127.0.0.1", "10.0.0.1"],
        ],
    );
    for _ in 0..2 {
        assert!(sender.register("http://localhost:25/").await.is_ok());
    }
    for _ in 0..2 {
        let registered = sender.register("https://hook.example/").await;
        assert_eq!(registered, Err(DestinationError::NotPublic));
    }
    assert!(sender.register("http://127.0.0.1:25/").await.is_ok());
}
