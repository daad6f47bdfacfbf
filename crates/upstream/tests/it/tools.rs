//! Tools over HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use turnpike_upstream::{
    ArgPlace, ArgSettings, ArgStyle, ArgsIn, BuildError, CallBounds, Guard, HttpEndpoint, Provider,
    ProviderKind, ProviderSettings, QuoteSettings, Secret, ToolMethod, UpstreamError,
};

use crate::settings;
use crate::stand_in::{StandIn, json_answer, reply};

/// No bounds of the tool's own.
const ANY: CallBounds = CallBounds {
    timeout: None,
    max_answer_bytes: None,
};

#[tokio::test]
async fn tools_are_called_over_http_and_quoted() {
    let stand_in = StandIn::answering(json_answer("{\"price\":{\"usd\":\"0.0125\"}}")).await;
    let provider = Provider::new(&settings(ProviderKind::Http, format!("{}/api", stand_in.url()))).unwrap();
    let mut spec = HttpEndpoint {
        method: ToolMethod::Post,
        path: "/users/{id}/notes".to_owned(),
        args_in: ArgsIn::Body,
        quote: Some(QuoteSettings {
            path: "/quote".to_owned(),
            price_pointer: "/price/usd".to_owned(),
        }),
        ..HttpEndpoint::default()
    };
    let args = json!({"id": "a/b", "q": "x y"});
    let reply = provider.execute("notes", Some(&spec), &args, ANY).await.unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&reply.body).unwrap()["price"]["usd"],
        "0.0125"
    );
    spec.method = ToolMethod::Get;
    provider.execute("notes", Some(&spec), &args, ANY).await.unwrap();
    assert_eq!(
        provider
            .quote("notes", Some(&spec), &args, ANY)
            .await
            .unwrap()
            .get(),
        12_500
    );
    let seen = stand_in.requests();
    assert!(seen[0].starts_with("POST /api/users/a%2Fb/notes HTTP/1.1\r\n"));
    assert!(seen[0].ends_with("{\"q\":\"x y\"}"));
    assert!(seen[1].starts_with("GET /api/users/a%2Fb/notes?q=x%20y HTTP/1.1\r\n"));
    assert!(!seen[1].contains("content-type") && !seen[1].contains("content-length"));
    assert!(seen[2].starts_with("POST /api/quote ") && seen[2].ends_with("{\"id\":\"a/b\",\"q\":\"x y\"}"));
    assert_eq!(provider.calls(), 2);
}

// Fault matrix 80
#[tokio::test]
async fn a_tool_reply_is_valid_json_or_an_error() {
    let spec = HttpEndpoint {
        path: "/x".to_owned(),
        ..HttpEndpoint::default()
    };
    for (answer, ok) in [
        (json_answer("[1]"), true),
        (reply(204, "text/plain", ""), true),
        (json_answer("{"), false),
        (json_answer(""), false),
        (reply(200, "text/html", "<p>"), false),
        (reply(404, "application/json", "{}"), false),
    ] {
        let stand_in = StandIn::answering(answer).await;
        let provider = Provider::new(&settings(ProviderKind::Http, stand_in.url())).unwrap();
        let reply = provider.execute("x", Some(&spec), &json!({}), ANY).await;
        assert_eq!(reply.is_ok(), ok, "{reply:?}");
    }
}

fn get(path: &str) -> HttpEndpoint {
    HttpEndpoint {
        method: ToolMethod::Get,
        path: path.to_owned(),
        ..HttpEndpoint::default()
    }
}

// Fault matrix 80, 86
#[tokio::test]
async fn a_tool_has_its_own_time_and_size_within_the_providers() {
    let narrow = CallBounds {
        timeout: Some(Duration::from_millis(200)),
        max_answer_bytes: Some(16),
    };
    let wide = CallBounds {
        timeout: Some(Duration::from_hours(1)),
        max_answer_bytes: Some(usize::MAX),
    };
    let stand_in = StandIn::answering(json_answer("[1,2,3,4,5,6,7,8,9]")).await;
    let mut settings = settings(ProviderKind::Http, stand_in.url());
    settings.max_response_bytes = 64;
    let provider = Provider::new(&settings).unwrap();
    let ask = async |bounds| provider.execute("x", Some(&get("/x")), &json!({}), bounds).await;
    assert!(matches!(
        ask(narrow).await,
        Err(UpstreamError::BadResponse { .. })
    ));
    assert!(ask(wide).await.is_ok());
    let big = StandIn::answering(json_answer(&format!("[{}1]", "1,".repeat(64)))).await;
    settings.base_url = big.url();
    let provider = Provider::new(&settings).unwrap();
    let refused = provider.execute("x", Some(&get("/x")), &json!({}), wide).await;
    assert!(
        matches!(refused, Err(UpstreamError::BadResponse { .. })),
        "{refused:?}"
    );
    let slow = StandIn::dripping(
        b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 40\r\n\r\n".to_vec(),
        b"\"0123456789012345678901234567890123456789\"".to_vec(),
        Duration::from_millis(100),
    )
    .await;
    settings.base_url = slow.url();
    let provider = Provider::new(&settings).unwrap();
    let late = CallBounds {
        max_answer_bytes: None,
        ..narrow
    };
    let refused = provider.execute("x", Some(&get("/x")), &json!({}), late).await;
    assert!(refused.is_err_and(|error| error.is_timeout()));
}

// Fault matrix 80, 85
#[tokio::test]
async fn nothing_but_json_passes_and_no_header_of_the_provider_counts() {
    let head = |extra: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{extra}\r\n{body}")
            .into_bytes()
    };
    let large = format!("x-filler: {}\r\n", "x".repeat(100 * 1024));
    for (answer, ok) in [
        (
            head("set-cookie: a=b\r\nx-svc-credits-charged: 0\r\n", "{}"),
            true,
        ),
        (head(&large, "{}"), false),
        (head("content-encoding: gzip\r\n", "{}"), false),
        (head("location: http://169.254.169.254/\r\n", "{}"), true),
        (
            b"HTTP/1.1 307 X\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n".to_vec(),
            false,
        ),
        (head("", "{\"a\":1}{"), false),
    ] {
        let stand_in = StandIn::answering(answer).await;
        let provider = Provider::new(&settings(ProviderKind::Http, stand_in.url())).unwrap();
        let reply = provider.execute("x", Some(&get("/x")), &json!({}), ANY).await;
        assert_eq!(reply.is_ok(), ok, "{reply:?}");
        assert_eq!(stand_in.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_tool_whose_successes_have_no_body_answers_null() {
    let stand_in = StandIn::answering(reply(200, "text/plain", "")).await;
    let provider = Provider::new(&settings(ProviderKind::Http, stand_in.url())).unwrap();
    let mut spec = get("/x");
    assert!(provider.execute("x", Some(&spec), &json!({}), ANY).await.is_err());
    spec.may_be_empty = true;
    let reply = provider.execute("x", Some(&spec), &json!({}), ANY).await.unwrap();
    assert_eq!(reply.body, "null");
}

#[tokio::test]
async fn a_key_goes_where_the_operator_says_and_no_argument_replaces_it() {
    let stand_in = StandIn::answering(json_answer("{}")).await;
    let key = |header: Option<&str>, query: Option<&str>| ProviderSettings {
        api_key: Some(Secret::from("k y".to_owned())),
        auth_header: header.map(str::to_owned),
        auth_query: query.map(str::to_owned),
        ..settings(ProviderKind::Http, stand_in.url())
    };
    let mut spec = get("/x");
    let trace = ArgSettings {
        place: ArgPlace::Header,
        name: Some("X-Special".to_owned()),
        style: ArgStyle::Repeat,
    };
    spec.args.insert("trace".to_owned(), trace);
    let args = json!({"trace": "mine", "q": 1});
    let call = async |settings: &ProviderSettings, args: &Value| {
        let provider = Provider::new(settings).unwrap();
        provider.execute("x", Some(&spec), args, ANY).await
    };
    call(&key(Some("X-Special"), None), &args).await.unwrap();
    call(&key(None, Some("api key")), &args).await.unwrap();
    let taken = call(&key(None, Some("q")), &args).await;
    assert!(matches!(taken, Err(UpstreamError::NotSent { .. })), "{taken:?}");
    let seen = stand_in.requests();
    assert_eq!(seen.len(), 2);
    let first = seen[0].to_ascii_lowercase();
    assert!(
        first.contains("x-special: k y\r\n") && !first.contains("mine") && !first.contains("authorization")
    );
    assert!(
        seen[1].starts_with("GET /x?q=1&api%20key=k%20y HTTP/1.1\r\n"),
        "{}",
        seen[1]
    );
    for wrong in [
        key(Some("a b"), None),
        key(Some("a"), Some("b")),
        key(Some("Host"), None),
        key(None, Some("")),
    ] {
        assert_eq!(Provider::new(&wrong).unwrap_err(), BuildError::AuthName);
    }
}

// Fault matrix 104, 165
#[tokio::test]
async fn a_base_url_that_is_not_the_operators_must_be_public() {
    let stand_in = StandIn::answering(json_answer("{}")).await;
    let at = |base_url: &str, guard| ProviderSettings {
        guard,
        ..settings(ProviderKind::Http, base_url.to_owned())
    };
    for url in [
        "http://example.com",
        "https://127.0.0.1",
        "https://localhost",
        "https://10.0.0.1",
        "https://169.254.169.254/latest",
        "https://[::ffff:10.0.0.1]",
        "https://0x7f.1",
        "https://user:pw@example.com",
        "https://example.com/#x",
        "https://example.com/?x=1",
        "//example.com",
        "javascript:alert(1)",
        "https://example.com:22",
    ] {
        assert!(Provider::new(&at(url, Guard::Public)).is_err(), "{url}");
    }
    Provider::new(&at("https://api.example.com/v1/", Guard::Public)).unwrap();
    Provider::new(&at(&stand_in.url(), Guard::Public)).unwrap_err();
    let developing = Provider::new(&at(&stand_in.url(), Guard::PublicOrLoopback)).unwrap();
    developing
        .execute("x", Some(&get("/x")), &json!({}), ANY)
        .await
        .unwrap();
}
