//! Stored answers: how long they are kept, how long they may be, and who may see them.

use http::Method;

use crate::harness::upstream::{answer, completion, tokens};
use crate::harness::{CHAT, Setup, Site, Step, Store, chat, chat_stream, eventually, micros};
use crate::idempotency::same;
use crate::on_both_stores;

on_both_stores!(
    an_answer_that_is_no_longer_kept_is_gone_and_not_charged_again,
    a_revoked_or_expired_key_cannot_replay,
    an_answer_too_long_to_keep_is_gone,
);

// Fault matrix 37
async fn an_answer_that_is_no_longer_kept_is_gone_and_not_charged_again(store: Store) {
    let site = Site::new(store).await;
    let body = chat("flat", "hi");
    let first = site.chat(&body).once("old").send().await.expect(200);
    let stream = site
        .chat(&chat_stream("flat", "hi"))
        .once("old-stream")
        .send()
        .await
        .expect(200);
    site.finished_call(stream.header("x-svc-call-id").unwrap()).await;
    for change in [
        "UPDATE outcomes SET expires_at = 1",
        "UPDATE outcomes SET body = NULL",
    ] {
        site.database.execute(change).await;
        for (key, body) in [("old", &body), ("old-stream", &chat_stream("flat", "hi"))] {
            let gone = site
                .chat(body)
                .once(key)
                .send()
                .await
                .refused(410, "RESULT_EXPIRED");
            assert!(gone.json()["callId"].is_string());
        }
    }
    let id = first.header("x-svc-call-id").unwrap();
    site.get(&format!("/api/credits/calls/{id}/result"))
        .send()
        .await
        .refused(410, "RESULT_EXPIRED");
    assert_eq!(site.call(id).await["chargedUsd"], "0.01");
    assert_eq!(site.upstream.count(), 2);
    assert_eq!(site.settled().await, micros("9.98"));
}

// Fault matrix 40
async fn a_revoked_or_expired_key_cannot_replay(store: Store) {
    let site = Site::new(store).await;
    let body = chat("flat", "hi");
    let issue = |more: &[&str]| {
        let mut args = vec!["key", "create", "--tenant", &site.tenant, "--name", "short"];
        args.extend(more);
        let issued = site.operate(&args);
        let id = issued["keyMetadata"]["id"].as_str().unwrap().to_owned();
        (issued["key"].as_str().unwrap().to_owned(), id)
    };
    let (revoked, id) = issue(&[]);
    let send = |key: &str| {
        site.client
            .request(Method::POST, CHAT)
            .bearer(key)
            .once("k")
            .json(&body)
            .send()
    };
    let first = send(&revoked).await.expect(200);
    site.operate(&["key", "revoke", "--tenant", &site.tenant, &id]);
    let refused = eventually("the key is refused", || async {
        let reply = send(&revoked).await;
        (reply.status != 200).then_some(reply)
    })
    .await;
    let refused = refused.refused(401, "CREDENTIAL_REVOKED");
    assert!(!refused.text().contains("chatcmpl"));
    assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer"));
    same(&first, &send(&site.key).await);
    let (short, id) = issue(&["--expires-in", "60"]);
    send(&short).await.expect(200);
    let hex = id.replace('-', "");
    let one = match store {
        Store::Sqlite => format!("x'{hex}'"),
        Store::Postgres => format!("'{id}'"),
    };
    site.database
        .execute(&format!(
            "UPDATE api_keys SET expires_at = 1 WHERE key_id = {one}"
        ))
        .await;
    let refused = eventually("the key is refused", || async {
        let reply = send(&short).await;
        (reply.status != 200).then_some(reply)
    })
    .await;
    refused.refused(401, "CREDENTIAL_EXPIRED");
    assert_eq!(site.upstream.count(), 1);
}

// Fault matrix 38, 41
async fn an_answer_too_long_to_keep_is_gone(store: Store) {
    let site = Setup::new(store)
        .set("calls.max_stored_bytes", 1_500_000)
        .start()
        .await;
    for (length, kept) in [(1_200_000, true), (1_600_000, false)] {
        site.upstream.script(move |seen| {
            let mut steps = vec![completion(seen.number, &tokens(1, 1))];
            if let Some(Step::Bytes(bytes)) = steps.first_mut() {
                let text = String::from_utf8(bytes.clone()).unwrap();
                let (_, body) = text.split_once("\r\n\r\n").unwrap();
                let body = body.replace("Hello world", &"x".repeat(length));
                steps = vec![answer(200, &[], body.as_bytes())];
            }
            steps
        });
        let key = format!("long-{length}");
        let first = site.chat(&chat("flat", "hi")).once(&key).send().await.expect(200);
        assert!(first.body.len() > length);
        let again = site.chat(&chat("flat", "hi")).once(&key).send().await;
        if kept {
            same(&first, &again);
        } else {
            again.refused(410, "RESULT_EXPIRED");
        }
    }
    assert_eq!(site.upstream.count(), 2);
    assert_eq!(site.settled().await, micros("9.98"));
}
