//! Tools over HTTP.

use serde_json::{Value, json};
use turnpike_upstream::{ArgsIn, HttpEndpoint, Provider, ProviderKind, QuoteSettings, ToolMethod};

use crate::settings;
use crate::stand_in::{StandIn, json_answer, reply};

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
    };
    let args = json!({"id": "a/b", "q": "x y"});
    let reply = provider.execute("notes", Some(&spec), &args).await.unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&reply.body).unwrap()["price"]["usd"],
        "0.0125"
    );
    spec.method = ToolMethod::Get;
    provider.execute("notes", Some(&spec), &args).await.unwrap();
    assert_eq!(
        provider.quote("notes", Some(&spec), &args).await.unwrap().get(),
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
        let reply = provider.execute("x", Some(&spec), &json!({})).await;
        assert_eq!(reply.is_ok(), ok, "{reply:?}");
    }
}
