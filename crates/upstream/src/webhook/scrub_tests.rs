//! Tests of scrubbing: what must go, what must stay, and the three properties of everything that is kept.

use proptest::prelude::*;

use super::scrub::{MAX_BYTES, TRUNCATED, stored};

fn whole(text: &str) -> String {
    stored(text.as_bytes(), true)
}

// Fault matrix 176, 223
#[test]
fn credentials_are_redacted() {
    let key = "0123456789abcdefABCDEF";
    for secret in [
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
        &format!("svc_sk_live_{key}"),
        &format!("my_brand_pk_test_{key}"),
        &format!("sk_live_{key}"),
        &format!("rk_test_{key}"),
        &format!("sk-{key}"),
        &format!("sk-proj-{key}_-x"),
        "Bearer abc.DEF-123_~+/=",
        "bearer\t0123456789",
        "BEARER  0123456789",
        "Bearer%200123456789",
        "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ1In0.c2lnbmF0dXJl-_",
        "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ1In0",
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "3782 822463 10005",
        "6304000000000000000",
        "4222222222222",
        "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\\nMIIE\\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nMIIE\n-----END PGP PRIVATE KEY BLOCK-----",
    ] {
        for (before, after) in [("", ""), ("{\"a\":\"", "\"}"), ("say: ", ", ok"), ("\n", "\n")] {
            let text = format!("{before}{secret}{after}");
            assert_eq!(whole(&text), format!("{before}[redacted]{after}"), "{text}");
        }
    }
    assert_eq!(whole("1 4111 1111 1111 1111 2"), "1 [redacted] 2");
    assert_eq!(whole(r"\n4111 1111 1111 1111\n"), r"\n[redacted]\n");
    assert_eq!(whole("pan4111111111111111x"), "pan[redacted]x");
    assert_eq!(
        whole("4111111111111111 4111111111111111"),
        "[redacted] [redacted]"
    );
    assert_eq!(
        whole("-----BEGIN EC PRIVATE KEY-----\nMIIE and so on"),
        "[redacted]",
        "a key without its end"
    );
}

#[test]
fn other_text_stays() {
    for text in [
        "",
        "{\"received\":true}",
        "ok\n\tdone",
        "Grüße 你好 🙂",
        "order 4111111111111112",
        "at 1800000000000, id 0192f0c8-0000-7000-8000-000000000001",
        "41111111111111111111111111111111",
        "task-force-of-the-day",
        "-----BEGIN CERTIFICATE-----",
        "whsec_",
        "the bearer is",
    ] {
        assert_eq!(whole(text), text);
    }
}

#[test]
fn what_cannot_be_printed_is_replaced() {
    assert_eq!(
        stored(b"a\0b\x1b[31mc\x7f\xc2\x85d", true),
        "a\u{fffd}b\u{fffd}[31mc\u{fffd}\u{fffd}d"
    );
    assert_eq!(stored(b"a\r\nb\rc", true), "a\nb\u{fffd}c");
    assert_eq!(stored(b"\xff\xfeok", true), "\u{fffd}\u{fffd}ok");
}

// Fault matrix 168
#[test]
fn a_long_text_is_cut_at_a_letter_and_marked() {
    assert_eq!(whole(&"a".repeat(MAX_BYTES)), "a".repeat(MAX_BYTES));
    let cut = whole(&"a".repeat(MAX_BYTES + 1));
    assert_eq!(cut.len(), MAX_BYTES);
    assert!(cut.ends_with(TRUNCATED));
    for shift in 0..4 {
        let cut = whole(&format!("{}{}", "a".repeat(shift), "🙂".repeat(2000)));
        assert!(cut.ends_with(TRUNCATED));
        assert!((MAX_BYTES - 3..=MAX_BYTES).contains(&cut.len()));
    }
    assert_eq!(
        stored(b"first line\nsecond", false),
        format!("first line\n{TRUNCATED}")
    );
}

/// Secrets at every place around the cut, by what must not survive of them.
#[test]
fn no_half_of_a_secret_survives_a_cut() {
    let secrets = [
        "whsec_CANARYCANARYCANARYCANARYCANARYCANARYCANARY=",
        "svc_sk_live_CANARYCANARYCANARYCANARY",
        "sk-CANARYCANARYCANARYCANARY",
        "Bearer CANARYCANARYCANARYCANARY",
        "eyJCANARYCANARY.CANARYCANARY.CANARYCANARY",
        "-----BEGIN PRIVATE KEY-----CANARYCANARY-----END PRIVATE KEY-----",
    ];
    for secret in secrets {
        // Whole, where the text that is kept ends.
        for shift in 0..=secret.len() {
            let text = format!(
                "{} {secret} {}",
                ".".repeat(MAX_BYTES - TRUNCATED.len() - shift),
                "x".repeat(99)
            );
            let kept = whole(&text);
            assert!(!kept.contains("CANARY"), "{secret} at {shift}: {}", &kept[4000..]);
        }
        // Broken off by the end of reading.
        for length in 0..secret.len() {
            let text = format!("error: {}", &secret[..length]);
            let kept = stored(text.as_bytes(), false);
            assert!(!kept.contains("CANA"), "{kept}");
        }
    }
    for card in ["4111111111111111", "4111 1111 1111 1111", "4111-1111-1111-1111"] {
        for length in 0..card.len() {
            let text = format!("card: {}", &card[..length]);
            assert!(!stored(text.as_bytes(), false).contains('4'), "{text}");
        }
    }
}

fn foreign() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        "[ -~]{0,40}".prop_map(String::into_bytes),
        "\\PC{0,40}".prop_map(String::into_bytes),
        "[0-9 -]{10,30}".prop_map(String::into_bytes),
        "(whsec_|sk-|svc_sk_live_|Bearer |eyJ|-----BEGIN PRIVATE KEY-----)[A-Za-z0-9._=-]{0,30}"
            .prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(b"4111 1111 1111 1111".to_vec()),
        (0_usize..3000).prop_map(|length| vec![b'7'; length]),
        (0_usize..3000).prop_map(|length| "é".repeat(length).into_bytes()),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn what_is_kept_is_short_and_printable_and_would_be_kept_again(raw in foreign(), is_whole in any::<bool>()) {
        let kept = stored(&raw, is_whole);
        prop_assert!(kept.len() <= MAX_BYTES, "{}", kept.len());
        prop_assert!(!kept.contains(|letter: char| letter.is_control() && letter != '\n' && letter != '\t'));
        prop_assert_eq!(stored(kept.as_bytes(), true), kept);
    }
}
