//! The crate against raw sockets that misbehave.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside the test functions that are exempt"
)]

mod calls;
mod stand_in;
mod streams;
mod tools;
mod webhooks;

use std::time::Duration;

use bytes::Bytes;
use stand_in::StandIn;
use turnpike_upstream::{ChatApi, Provider, ProviderKind, ProviderSettings, Secret, UpstreamError};

pub(crate) const CHAT: ChatApi = ChatApi::ChatCompletions;

pub(crate) fn settings(kind: ProviderKind, base_url: String) -> ProviderSettings {
    ProviderSettings {
        id: "p".to_owned(),
        kind,
        base_url,
        api_key: Some(Secret::new("sk-canary-1")),
        connect_timeout: Duration::from_millis(500),
        header_timeout: Duration::from_millis(400),
        idle_timeout: Duration::from_millis(300),
        total_timeout: Duration::from_millis(900),
        max_response_bytes: 100_000,
        ..ProviderSettings::default()
    }
}

pub(crate) fn openai(stand_in: &StandIn) -> Provider {
    Provider::new(&settings(ProviderKind::OpenAi, format!("{}/v1", stand_in.url()))).unwrap()
}

pub(crate) fn body() -> Bytes {
    Bytes::from_static(b"{\"model\":\"m\"}")
}

pub(crate) async fn complete(answer: Vec<u8>) -> UpstreamError {
    let stand_in = StandIn::answering(answer).await;
    openai(&stand_in).complete(CHAT, body()).await.unwrap_err()
}

pub(crate) fn bad(reason: &'static str) -> UpstreamError {
    UpstreamError::BadResponse { reason }
}
