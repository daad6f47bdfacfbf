//! Tests of destinations: every way to write an address that must not be reached.

use super::destination::{Destination, DestinationError, MAX_URL_BYTES};

fn refused(text: &str, allow_loopback: bool) -> Option<DestinationError> {
    Destination::parse(text, allow_loopback).err()
}

fn normal(text: &str) -> String {
    Destination::parse(text, false).unwrap().as_str().to_owned()
}

/// Hosts that mean this machine.
pub(super) const LOOPBACK: [&str; 18] = [
    "127.0.0.1",
    "127.9.9.9",
    "127.0.0.1.",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "0177.0.0.1",
    "0x7f.1",
    "127.1",
    "127.0.1",
    "%31%32%37.0.0.1",
    "１２７.０.０.１",
    "①②⑦.⓪.⓪.①",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "localhost",
    "LOCALHOST.",
    "a.b.localhost",
];

/// Hosts inside, or nowhere, whatever the setting for loopback.
pub(super) const INSIDE: [&str; 33] = [
    "10.0.0.1",
    "10.255.255.255",
    "167772161",
    "012.1",
    "172.16.0.1",
    "172.31.255.254",
    "192.168.1.1",
    "0xc0a80101",
    "169.254.169.254",
    "2852039166",
    "0xa9.0xfe.0xa9.0xfe",
    "169.254.43518",
    "100.64.0.1",
    "100.127.255.254",
    "0.0.0.0",
    "0",
    "0x0",
    "255.255.255.255",
    "224.0.0.1",
    "[::]",
    "[fe80::1]",
    "[fe81::1]",
    "[febf::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::1]",
    "[2001::1]",
    "[ff02::1]",
];

// Fault matrix 165
#[test]
fn addresses_inside_are_refused_however_they_are_written() {
    for host in LOOPBACK {
        let text = format!("https://{host}/hook");
        assert_eq!(refused(&text, false), Some(DestinationError::NotPublic), "{text}");
        assert_eq!(refused(&text, true), None, "{text}");
        assert_eq!(refused(&format!("http://{host}:25/hook"), true), None, "{text}");
        assert_eq!(
            refused(&format!("http://{host}/"), false),
            Some(DestinationError::Scheme)
        );
    }
    for host in INSIDE {
        let text = format!("https://{host}:8443/hook");
        for allow_loopback in [false, true] {
            assert_eq!(
                refused(&text, allow_loopback),
                Some(DestinationError::NotPublic),
                "{text}"
            );
        }
        assert_eq!(
            refused(&format!("http://{host}/"), true),
            Some(DestinationError::Scheme)
        );
    }
}

// Fault matrix 165
#[test]
fn ports_of_other_services_are_refused() {
    for port in [0, 21, 22, 23, 25, 110, 445, 1023] {
        for host in ["example.com", "8.8.8.8", "[2606:4700::1111]"] {
            let text = format!("https://{host}:{port}/");
            assert_eq!(refused(&text, true), Some(DestinationError::Port), "{text}");
        }
    }
    for port in [80, 443, 1024, 8443, 65535] {
        assert_eq!(refused(&format!("https://example.com:{port}/"), false), None);
    }
}

#[test]
fn only_plain_https_urls_are_destinations() {
    let long = format!("https://example.com/{}", "a".repeat(MAX_URL_BYTES));
    let grows = format!("https://example.com/{}", "é".repeat(600));
    for (text, expected) in [
        ("", DestinationError::Malformed),
        ("example.com/hook", DestinationError::Malformed),
        ("/hook", DestinationError::Malformed),
        ("https://", DestinationError::Malformed),
        ("https:///", DestinationError::Malformed),
        (" https://example.com/", DestinationError::Malformed),
        ("https://exa\tmple.com/", DestinationError::Malformed),
        ("https://example.com/a b", DestinationError::Malformed),
        ("https://example.com/\0", DestinationError::Malformed),
        ("https://exa%00mple.com/", DestinationError::Malformed),
        ("https://example.com:99999/", DestinationError::Malformed),
        ("https://[::1/", DestinationError::Malformed),
        ("https://[fe80::1%25eth0]/", DestinationError::Malformed),
        ("https://1.2.3.4.5/", DestinationError::Malformed),
        ("https://256.1.1.1/", DestinationError::Malformed),
        ("http://example.com/", DestinationError::Scheme),
        ("ftp://example.com/", DestinationError::Scheme),
        ("file:///etc/passwd", DestinationError::Scheme),
        ("gopher://example.com/", DestinationError::Scheme),
        ("javascript:alert(1)", DestinationError::Scheme),
        ("data:text/plain,x", DestinationError::Scheme),
        ("unix:/run/x.sock", DestinationError::Scheme),
        ("https://user@example.com/", DestinationError::UserInfo),
        ("https://user:pass@example.com/", DestinationError::UserInfo),
        ("https://:pass@example.com/", DestinationError::UserInfo),
        ("https://example.com@evil.example/", DestinationError::UserInfo),
        ("https://example.com/#x", DestinationError::Fragment),
        ("https://example.com/#", DestinationError::Fragment),
        (&long, DestinationError::TooLong),
        (&grows, DestinationError::TooLong),
    ] {
        assert_eq!(refused(text, false), Some(expected), "{text}");
    }
}

#[test]
fn what_is_kept_is_the_normalised_url() {
    for (text, expected) in [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://EXAMPLE.com:443/A?b=C", "https://example.com/A?b=C"),
        ("https://bücher.example/é", "https://xn--bcher-kva.example/%C3%A9"),
        ("https://134744072/x", "https://8.8.8.8/x"),
        ("https://example.com/a/../b", "https://example.com/b"),
        ("https:\\\\example.com\\x", "https://example.com/x"),
        (
            "https://[2606:4700:0::1111]:8443/",
            "https://[2606:4700::1111]:8443/",
        ),
    ] {
        assert_eq!(normal(text), expected);
    }
    let longest = format!("https://example.com/{}", "a".repeat(MAX_URL_BYTES - 20));
    assert_eq!(normal(&longest).len(), MAX_URL_BYTES);
}

// Fault matrix 223
#[test]
fn the_path_is_not_in_the_debug_text() {
    let destination = Destination::parse("https://example.com/canary?canary", false).unwrap();
    assert_eq!(format!("{destination:?}"), "Destination(example.com)");
}
