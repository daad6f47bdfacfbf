//! Paths, queries and quoted prices.

use serde_json::json;

use super::*;

// Fault matrix 101
#[test]
fn an_argument_fills_exactly_one_segment() {
    for (value, expected) in [
        (json!("a b"), "/v/a%20b/x"),
        (json!("../../admin"), "/v/..%2F..%2Fadmin/x"),
        (json!("a?b#c&d=e%00"), "/v/a%3Fb%23c%26d%3De%2500/x"),
        (json!("é"), "/v/%C3%A9/x"),
        (json!(7), "/v/7/x"),
        (json!(true), "/v/true/x"),
    ] {
        assert_eq!(
            fill("/v/{id}/x", &json!({"id": value})),
            Ok((expected.to_owned(), vec!["id"]))
        );
    }
    for value in [
        json!(""),
        json!("."),
        json!(".."),
        json!(null),
        json!([1]),
        json!({}),
    ] {
        assert!(fill("/v/{id}", &json!({"id": value})).is_err(), "{value}");
    }
    assert!(fill("/v/{id}", &json!({})).is_err());
    assert_eq!(fill("plain", &json!([])), Ok(("/plain".to_owned(), vec![])));
}

#[test]
fn other_args_go_into_the_query() {
    let args = json!({"q": "a&b=c", "n": 3, "tags": ["x", "y"], "skip": null, "deep": {"k": 1}});
    assert_eq!(
        with_query("/s".to_owned(), &args),
        "/s?q=a%26b%3Dc&n=3&tags=x&tags=y&deep=%7B%22k%22%3A1%7D"
    );
    assert_eq!(with_query("/s".to_owned(), &json!({})), "/s");
    assert_eq!(*without(&json!({"id": 1, "q": 2}), &["id"]), json!({"q": 2}));
}

// Fault matrix 9
#[test]
fn quoted_prices_are_exact_and_rounded_up() {
    for (text, micros) in [
        ("0.01", Some(10_000)),
        ("1", Some(1_000_000)),
        ("0", Some(0)),
        ("0.00", Some(0)),
        ("0.0000001", Some(1)),
        ("0.0000010000000000000000000001", Some(2)),
        ("2.0000000000000002e-07", Some(1)),
        ("1.5e1", Some(15_000_000)),
        ("1E-6", Some(1)),
        ("1e-30", Some(1)),
        ("0e999999", Some(0)),
        ("9223372036854.775807", Some(i64::MAX)),
        ("9223372036854.775808", None),
        ("1e300", None),
        ("-1", None),
        ("+1", None),
        ("", None),
        (".5", None),
        ("1.", None),
        ("NaN", None),
        ("1e", None),
        ("1,5", None),
        ("0x10", None),
        ("1.1.1", None),
    ] {
        assert_eq!(price(text).map(Micros::get), micros, "{text}");
    }
}

#[test]
fn a_pointer_leads_to_the_raw_token() {
    let json = r#"{"a/b":[{"usd":0.1},{"usd":"0.30"}],"x":null}"#;
    assert_eq!(price_at(json, "/a~1b/0/usd").map(Micros::get), Some(100_000));
    assert_eq!(price_at(json, "/a~1b/1/usd").map(Micros::get), Some(300_000));
    for pointer in ["", "/x", "/a~1b", "/a~1b/2/usd", "/none", "a"] {
        assert_eq!(price_at(json, pointer), None, "{pointer}");
    }
    assert_eq!(price_at("0.5", "").map(Micros::get), Some(500_000));
}
