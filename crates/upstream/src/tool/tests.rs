//! Paths, queries and quoted prices.

use serde_json::json;

use super::*;

fn endpoint(path: &str) -> HttpEndpoint {
    HttpEndpoint {
        path: path.to_owned(),
        ..HttpEndpoint::default()
    }
}

fn placed(place: ArgPlace, name: &str, style: ArgStyle) -> ArgSettings {
    ArgSettings {
        place,
        name: Some(name.to_owned()),
        style,
    }
}

// Fault matrix 101
#[test]
fn an_argument_fills_its_place_in_one_segment() {
    let path = |template: &str, args: Value| endpoint(template).request(&args).map(|request| request.path);
    for (value, expected) in [
        (json!("a b"), "/v/a%20b/x"),
        (json!("a/b"), "/v/a%2Fb/x"),
        (json!("//evil.example"), "/v/%2F%2Fevil.example/x"),
        (json!("a?b#c&d=e%00"), "/v/a%3Fb%23c%26d%3De%2500/x"),
        (json!("%2e%2e%2fadmin"), "/v/%252e%252e%252fadmin/x"),
        (json!("é\u{202e}"), "/v/%C3%A9%E2%80%AE/x"),
        (json!("..."), "/v/.../x"),
        (json!(7), "/v/7/x"),
        (json!(true), "/v/true/x"),
        (json!(["a,", "b/c"]), "/v/a%2C,b%2Fc/x"),
    ] {
        assert_eq!(path("/v/{id}/x", json!({"id": value})).unwrap(), expected);
    }
    for value in [
        json!(""),
        json!("."),
        json!(".."),
        json!("../../admin"),
        json!("a/../b"),
        json!("..\\admin"),
        json!("a\u{0}b"),
        json!("a\r\nHost: evil"),
        json!("\u{7f}"),
        json!("\u{85}"),
        json!(null),
        json!([]),
        json!([["a"]]),
        json!(["a/..", "b", "../c"]),
        json!({}),
    ] {
        let refused = path("/v/{id}", json!({"id": value})).unwrap_err();
        assert_eq!(refused.arg, "id", "{value}");
    }
    assert!(path("/v/{id}", json!({})).is_err());
    assert_eq!(path("plain", json!([])).unwrap(), "/plain");
}

// Fault matrix 101
#[test]
fn a_segment_may_have_several_arguments_and_text() {
    let path = |template: &str, args: Value| endpoint(template).request(&args).map(|request| request.path);
    for (template, args, expected) in [
        ("/users/{id}.json", json!({"id": "a.b/c"}), "/users/a.b%2Fc.json"),
        ("/a/{x}:{y}", json!({"x": 1, "y": "z"}), "/a/1:z"),
        ("/{a}...{b}/", json!({"a": "main", "b": "dev"}), "/main...dev/"),
        ("/x{open", json!({}), "/x{open"),
    ] {
        assert_eq!(path(template, args).unwrap(), expected);
    }
    // Together they would be a dot segment.
    assert!(path("/{a}.", json!({"a": "."})).is_err());
    assert!(path("/a/{x}{y}", json!({"x": ".", "y": "."})).is_err());
}

#[test]
fn other_args_go_into_the_query() {
    let spec = HttpEndpoint {
        method: ToolMethod::Get,
        ..endpoint("/s/{id}")
    };
    let args = json!({"id": 1, "q": "a&b=c", "n": 3, "tags": ["x", "y"], "skip": null, "deep": {"k": 1}});
    let request = spec.request(&args).unwrap();
    assert_eq!((request.path.as_str(), request.body), ("/s/1", None));
    assert_eq!(
        request.query,
        "q=a%26b%3Dc&n=3&tags=x&tags=y&deep=%7B%22k%22%3A1%7D"
    );
    assert_eq!(spec.request(&json!({"id": 1})).unwrap().query, "");
    let long = json!({"id": 1, "q": "x".repeat(20_000)});
    assert!(spec.request(&long).is_err());
}

#[test]
fn a_query_is_written_in_the_style_that_is_wanted() {
    use ArgStyle::{Comma, Deep, Json, Pipe, Repeat, Space};
    for (style, value, expected) in [
        (Repeat, json!(["a b", 1, null]), "q=a%20b&q=1"),
        (Repeat, json!({"x": 1, "y&": "z="}), "x=1&y%26=z%3D"),
        (Comma, json!(["a,b", "c"]), "q=a%2Cb,c"),
        (Comma, json!({"x": 1, "y": 2}), "q=x,1,y,2"),
        (Space, json!(["a", "b"]), "q=a%20b"),
        (Pipe, json!(["a", "b|"]), "q=a%7Cb%7C"),
        (
            Deep,
            json!({"gt": 1, "in": [2, {"z": 3}]}),
            "q%5Bgt%5D=1&q%5Bin%5D%5B0%5D=2&q%5Bin%5D%5B1%5D%5Bz%5D=3",
        ),
        (Json, json!({"a": [1]}), "q=%7B%22a%22%3A%5B1%5D%7D"),
        (Comma, json!([]), ""),
        (Deep, json!("x"), "q=x"),
        (Pipe, json!(null), ""),
    ] {
        let mut spec = endpoint("/s");
        spec.method = ToolMethod::Get;
        spec.args
            .insert("arg".to_owned(), placed(ArgPlace::Query, "q", style));
        let request = spec.request(&json!({"arg": value})).unwrap();
        assert_eq!(request.query, expected, "{style:?} {value}");
    }
}

#[test]
fn arguments_go_where_their_settings_say() {
    let mut spec = endpoint("/things/{id}");
    spec.args_in = ArgsIn::Query;
    for (arg, place, name) in [
        ("id", ArgPlace::Path, "id"),
        ("query_id", ArgPlace::Query, "id"),
        ("trace", ArgPlace::Header, "X-Trace"),
        ("theme", ArgPlace::Cookie, "theme"),
        ("title", ArgPlace::Body, "the title"),
        ("nothing", ArgPlace::Body, "nothing"),
    ] {
        spec.args
            .insert(arg.to_owned(), placed(place, name, ArgStyle::Repeat));
    }
    assert_eq!(spec.check(), Ok(()));
    let args =
        json!({"id": "a", "query_id": "b", "trace": "t 1", "theme": "d; x=y", "title": "T", "nothing": null});
    let request = spec.request(&args).unwrap();
    assert_eq!(
        (request.path.as_str(), request.query.as_str()),
        ("/things/a", "id=b")
    );
    assert_eq!(request.headers["x-trace"], "t 1");
    assert_eq!(request.headers["cookie"], "theme=d%3B%20x%3Dy");
    assert_eq!(request.headers["content-type"], "application/json");
    assert_eq!(request.body.unwrap(), r#"{"the title":"T","nothing":null}"#);
    for trace in ["a\r\nX-Evil: 1", "a\nb", "a\u{0}", "é", "\u{1f4b8}"] {
        let refused = spec.request(&json!({"id": "a", "trace": trace})).unwrap_err();
        assert_eq!(refused.arg, "trace", "{trace:?}");
    }
    let long = "x".repeat(9_000);
    assert!(spec.request(&json!({"id": "a", "trace": long})).is_err());
    assert!(spec.request(&json!({"id": "a", "theme": long})).is_err());
}

#[test]
fn a_body_is_a_whole_argument_or_its_members_or_a_form() {
    let mut spec = endpoint("/x");
    spec.args_in = ArgsIn::Query;
    spec.args.insert(
        "body".to_owned(),
        placed(ArgPlace::WholeBody, "body", ArgStyle::Repeat),
    );
    let sent = |spec: &HttpEndpoint, args: Value| spec.request(&args).unwrap().body;
    assert_eq!(sent(&spec, json!({"body": [1, 2]})).unwrap(), "[1,2]");
    assert_eq!(sent(&spec, json!({})), None);
    spec.content_type = Some("application/merge-patch+json".to_owned());
    let patch = spec.request(&json!({"body": {"a": null}})).unwrap();
    assert_eq!(patch.headers["content-type"], "application/merge-patch+json");
    assert_eq!(patch.body.unwrap(), r#"{"a":null}"#);
    spec.encoding = BodyEncoding::Form;
    let form = spec
        .request(&json!({"body": {"a": "x&y", "b": {"c": [1]}}}))
        .unwrap();
    assert_eq!(form.headers["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(form.body.unwrap(), "a=x%26y&b%5Bc%5D%5B0%5D=1");
    assert!(spec.request(&json!({"body": 1})).is_err());
    let mut nobody = endpoint("/x");
    nobody.args_in = ArgsIn::Query;
    assert_eq!(sent(&nobody, json!({})), None);
    assert_eq!(sent(&endpoint("/x"), json!({"q": 1})).unwrap(), r#"{"q":1}"#);
}

// Fault matrix 101, 104
#[test]
fn an_endpoint_that_arguments_could_misuse_is_refused() {
    for path in ["/a/../b", "/./x", "/a\\b", "/a\r\n", "/a#b", "..", "/a\u{0}"] {
        assert!(endpoint(path).check().is_err(), "{path:?}");
    }
    for name in [
        "Authorization",
        "authorization",
        "Host",
        "Cookie",
        "Content-Length",
        "Transfer-Encoding",
        "X-Forwarded-For",
        "Proxy-Authorization",
        "X-API-Key",
        "api_key",
        "X-Auth-Token",
        "x evil",
        "a\r\nb",
        "",
        "é",
        ":path",
    ] {
        let mut spec = endpoint("/x");
        spec.args
            .insert("arg".to_owned(), placed(ArgPlace::Header, name, ArgStyle::Repeat));
        assert!(spec.check().is_err(), "{name:?}");
    }
    for kind in ["text/html", "application/json\r\nx: y", ""] {
        let mut spec = endpoint("/x");
        spec.content_type = Some(kind.to_owned());
        assert!(spec.check().is_err(), "{kind:?}");
    }
    assert_eq!(endpoint("/users/{id}.json").check(), Ok(()));
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
