//! What the simulated provider promises.

use super::*;
use crate::provider::{Provider, ProviderSettings};
use crate::tool::CallBounds;

fn chat(content: &str) -> Value {
    json!({"model": "m-1", "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": content}]})
}

fn bytes(body: &Value) -> Bytes {
    Bytes::from(body.to_string())
}

fn provider() -> Provider {
    Provider::new(&ProviderSettings::default()).unwrap()
}

async fn drain(mut stream: EventStream) -> (String, crate::StreamSummary, Option<crate::StreamFault>) {
    let mut text = String::new();
    let mut fault = None;
    while let Some(part) = stream.next().await {
        match part {
            Ok(part) => text.push_str(std::str::from_utf8(&part).unwrap()),
            Err(end) => fault = Some(end),
        }
    }
    (text, stream.summary(), fault)
}

/// The text that a stream's chunks spell for choice 0.
fn spelled(stream: &str) -> String {
    stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: ")?.parse::<Value>().ok())
        .filter(|chunk| chunk["choices"][0]["index"] == 0)
        .filter_map(|chunk| {
            chunk["choices"][0]["delta"]["content"]
                .as_str()
                .map(str::to_owned)
        })
        .collect()
}

#[test]
fn the_same_request_gets_the_same_answer() {
    let first = simulate_chat(ChatApi::ChatCompletions, &chat("hello there"));
    assert_eq!(
        first,
        simulate_chat(ChatApi::ChatCompletions, &chat("hello there"))
    );
    assert_ne!(
        first.body,
        simulate_chat(ChatApi::ChatCompletions, &chat("hello here")).body
    );
    let usage = first.usage.unwrap();
    assert_eq!((usage.prompt_tokens(), usage.completion_tokens()), (6, 16));
    assert_eq!(first.model.as_deref(), Some("m-1"));
}

#[test]
fn limits_and_directives_shape_the_answer() {
    for (text, extra, output, reasoning, cached, finish) in [
        ("hi", json!({}), 16, 0, 0, "stop"),
        ("hi", json!({"max_tokens": 5}), 5, 0, 0, "length"),
        ("hi", json!({"max_completion_tokens": 16}), 16, 0, 0, "stop"),
        ("sim:tokens=50", json!({}), 50, 0, 0, "stop"),
        ("sim:tokens=50", json!({"max_tokens": 20}), 20, 0, 0, "length"),
        ("sim:tokens=5 sim:reasoning=7", json!({}), 5, 7, 0, "stop"),
        ("sim:reasoning=70", json!({"max_tokens": 20}), 0, 20, 0, "length"),
        ("one two sim:cached=3", json!({}), 16, 0, 3, "stop"),
        ("sim:cached=9999", json!({}), 16, 0, 5, "stop"),
        ("hi", json!({"n": 3, "max_tokens": 4}), 12, 0, 0, "length"),
        (
            "sim:tokens=99999999999",
            json!({"n": 128}),
            65_536,
            0,
            0,
            "length",
        ),
    ] {
        let mut body = chat(text);
        for (name, value) in extra.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = simulate_chat(ChatApi::ChatCompletions, &body);
        let json: Value = serde_json::from_slice(&answer.body).unwrap();
        let usage = answer.usage.unwrap();
        assert_eq!(
            (usage.output, usage.reasoning, usage.cached_input),
            (output, reasoning, cached),
            "{text}"
        );
        assert_eq!(json["choices"][0]["finish_reason"], finish, "{text}");
        assert!(usage.prompt_tokens() <= u64::try_from(body.to_string().len()).unwrap());
    }
}

#[test]
fn echo_answers_with_the_message_and_parts_are_read() {
    let parts = json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "sim:echo one"}, {"type": "text", "text": "two"}]}]});
    for body in [chat("sim:echo one two"), parts] {
        let answer = simulate_chat(ChatApi::ChatCompletions, &body);
        let json: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(json["choices"][0]["message"]["content"], "one two");
    }
    let fim = json!({"model": "m", "prompt": "sim:tokens=2 fn main", "suffix": "}"});
    let json: Value = serde_json::from_slice(&simulate_chat(ChatApi::Completions, &fim).body).unwrap();
    assert_eq!(json["object"], "text_completion");
    assert_eq!(json["choices"][0]["text"].as_str().unwrap().split(' ').count(), 2);
}

// Fault matrix 81
#[tokio::test]
async fn impossible_usage_is_a_fault_of_the_usage_only() {
    let provider = provider();
    for (word, usage, fault) in [
        ("none", false, false),
        ("null", false, false),
        ("zero", true, false),
        ("negative", false, true),
        ("huge", false, true),
        ("string", false, true),
        ("cached", false, true),
        ("x10", true, false),
    ] {
        let body = bytes(&chat(&format!("sim:usage={word}")));
        let answer = provider
            .complete(ChatApi::ChatCompletions, body.clone())
            .await
            .unwrap();
        assert_eq!(
            (answer.usage.is_some(), answer.usage_fault.is_some()),
            (usage, fault),
            "{word}"
        );
        let stream = provider
            .stream(ChatApi::ChatCompletions, body, false)
            .await
            .unwrap();
        let (_, summary, end) = drain(stream).await;
        assert_eq!(
            (summary.usage, summary.usage_fault.is_some()),
            (answer.usage, fault),
            "{word}"
        );
        assert_eq!((summary.done, end), (true, None));
    }
}

// Fault matrix 62, 69
#[tokio::test]
async fn a_stream_spells_the_plain_answer_and_drops_usage_when_not_asked() {
    let body = chat("sim:reasoning=3 tell me");
    let plain = simulate_chat(ChatApi::ChatCompletions, &body);
    let json: Value = serde_json::from_slice(&plain.body).unwrap();
    for keep in [true, false] {
        let stream = simulate_stream(ChatApi::ChatCompletions, &body, keep)
            .await
            .unwrap();
        let (text, summary, _) = drain(stream).await;
        assert_eq!(
            spelled(&text),
            json["choices"][0]["message"]["content"].as_str().unwrap()
        );
        assert_eq!(summary.usage, plain.usage);
        assert_eq!(text.contains("prompt_tokens"), keep);
        assert!(text.ends_with("data: [DONE]\n\n"));
        assert!(summary.delivered_bytes > 0 && summary.done);
        assert_eq!(summary.model.as_deref(), Some("m-1"));
    }
}

// Fault matrix 65, 77
#[tokio::test]
async fn directives_fail_as_a_provider_would() {
    let provider = provider();
    let ask = |text: &str| provider.complete(ChatApi::ChatCompletions, bytes(&chat(text)));
    let refused = ask("sim:status=429 sim:retry_after=7").await.unwrap_err();
    assert!(
        matches!(refused, UpstreamError::Status { status: 429, retry_after: Some(wait), .. } if wait.as_secs() == 7)
    );
    assert!(ask("sim:fail=timeout").await.unwrap_err().is_timeout());
    assert!(!ask("sim:fail=refused").await.unwrap_err().sent());
    assert_eq!(ask("sim:die_after=1").await.unwrap_err(), DIED);
    let open = |text: &str| provider.stream(ChatApi::ChatCompletions, bytes(&chat(text)), true);
    assert_eq!(open("sim:die_after=0").await.unwrap_err(), DIED);
    let (_, summary, fault) = drain(open("sim:die_after=3").await.unwrap()).await;
    assert_eq!(
        (summary.events, summary.done, fault),
        (3, false, Some(crate::StreamFault::Died))
    );
    assert_eq!(provider.calls(), 6);
}

#[tokio::test(start_paused = true)]
async fn delays_are_bounded_altogether() {
    let begin = tokio::time::Instant::now();
    let body = bytes(&chat("sim:delay_ms=25000 sim:tokens=10"));
    let stream = provider()
        .stream(ChatApi::ChatCompletions, body, true)
        .await
        .unwrap();
    assert_eq!(begin.elapsed(), Duration::from_secs(25));
    assert!(drain(stream).await.1.done);
    assert_eq!(begin.elapsed(), directives::MAX_DELAY);
}

#[tokio::test(start_paused = true)]
async fn tools_answer_and_fail_and_quote() {
    let provider = provider();
    let run = async |name: &str, args: Value| {
        let reply = provider.execute(name, None, &args, CallBounds::default()).await?;
        Ok::<Value, UpstreamError>(serde_json::from_slice(&reply.body).unwrap())
    };
    assert_eq!(run("echo", json!({"a": [1]})).await.unwrap(), json!({"a": [1]}));
    let units = run("units", json!({"count": 1_000_000})).await.unwrap();
    assert_eq!(
        (units["count"].as_u64(), units["items"].as_array().unwrap().len()),
        (Some(1000), 1000)
    );
    let begin = tokio::time::Instant::now();
    run("slow", json!({"delay_ms": 99_999_999})).await.unwrap();
    assert_eq!(begin.elapsed(), directives::MAX_DELAY);
    assert!(matches!(
        run("fail", json!({})).await,
        Err(UpstreamError::Status { status: 500, .. })
    ));
    assert!(matches!(
        run("fail", json!({"status": 422})).await,
        Err(UpstreamError::Status { status: 422, .. })
    ));
    assert!(matches!(
        run("none", json!({})).await,
        Err(UpstreamError::Status { status: 404, .. })
    ));
    for expected in [1500, 1507, 1514] {
        let price = provider
            .quote(
                "live",
                None,
                &json!({"query": "hello", "drift": 7}),
                CallBounds::default(),
            )
            .await
            .unwrap();
        assert_eq!(price.get(), expected);
    }
    assert!(
        provider
            .quote("echo", None, &json!({}), CallBounds::default())
            .await
            .is_err()
    );
}
