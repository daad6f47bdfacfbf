//! What must not happen: requests to where users cannot reach, secrets in events, floods from receivers.

use http::Method;
use serde_json::{Value, json};

use crate::harness::hooks::{BURNED, ENDPOINTS, Hook, Receiver, statuses};
use crate::harness::upstream::answer;
use crate::harness::{Setup, Site, Step, Store, TOOL, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    an_address_inside_is_refused,
    an_address_is_judged_again_when_it_is_told,
    a_redirect_is_a_failure_and_leads_nowhere,
    what_a_receiver_says_is_cut_and_scrubbed,
    an_event_has_no_prompt_and_no_key,
);

/// What does not lead to the public internet, or not over TLS, or not to a web port.
const REFUSED: &[&str] = &[
    "https://127.0.0.1/",
    "https://127.8.9.10/",
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.64.0.1/",
    "https://0.0.0.0/",
    "https://192.0.2.1/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "https://[::]/",
    "https://[::1]/",
    "https://[fe80::1]/",
    "https://[fe81::1]/",
    "https://[febf::1]/",
    "https://[fc00::1]/",
    "https://[fd12:3456:789a::1]/",
    "https://[ff02::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::10.0.0.1]/",
    "https://[64:ff9b:1::10.0.0.1]/",
    "https://[2002:7f00:1::]/",
    "https://[2002:a00:1::1]/",
    "https://[2001:0:53aa:64c:0:0:80ff:fffe]/",
    "https://[fec0::1]/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://017700000001/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://10.1/",
    "https://3232235777/",
    "https://\u{ff11}\u{ff12}\u{ff17}.0.0.1/",
    "https://127\u{3002}0\u{3002}0\u{3002}1/",
    "https://localhost/",
    "https://localhost./",
    "https://LOCALHOST/",
    "https://x.localhost/",
    "https://127.0.0.1.:8443/",
    "https://93.184.216.34:22/",
    "https://93.184.216.34:25/",
    "https://93.184.216.34:0/",
    "https://93.184.216.34:1023/",
    "https://93.184.216.34:70000/",
    "http://93.184.216.34/",
    "http://127.0.0.1/",
    "ftp://93.184.216.34/",
    "file:///etc/passwd",
    "gopher://93.184.216.34/",
    "javascript:alert(1)",
    "data:text/plain,x",
    "https://user@93.184.216.34/",
    "https://user:pass@93.184.216.34/",
    "https://:pass@93.184.216.34/",
    "https://93.184.216.34/#part",
    "https://93.184.216.34/#",
    "https://93.184.216.34/a b",
    "https://93.184.216.34/\t",
    " https://93.184.216.34/",
    "https://",
    "https:///",
    "//93.184.216.34/",
    "93.184.216.34",
    "https://[::1",
    "https://nobody.invalid/",
    "https://999.1.1.1/",
    "https://xn--/",
];

/// Tries `url` in both ways, where `hook` is.
async fn refused(site: &Site, hook: &Hook, url: &str) {
    let body = json!({ "url": url });
    for reply in [
        site.post(ENDPOINTS, &body).send().await,
        site.change_hook(hook, &body).await,
    ] {
        let shown = format!("{url}: {}", reply.text());
        assert_eq!(reply.status, 400, "{shown}");
        let reply = reply.refused(400, "VALIDATION_ERROR").json();
        assert_eq!(reply["details"][0]["path"], "url", "{shown}");
        let words = reply["details"][0]["message"].as_str().unwrap();
        assert!(!words.contains("93.184") && !words.contains("127."), "{shown}");
    }
}

// Fault matrix 165
async fn an_address_inside_is_refused(store: Store) {
    let site = Site::new(store).await;
    let hook = site
        .hook("https://93.184.216.34/hook", Some(&["credits.burn.failed"]))
        .await;
    for url in REFUSED {
        refused(&site, &hook, url).await;
    }
    let long = format!("https://93.184.216.34/{}", "x".repeat(2049 - 22));
    assert_eq!(long.len(), 2049);
    refused(&site, &hook, &long).await;
    let shown = site.shown_hook(&hook).await;
    assert_eq!(shown["url"], "https://93.184.216.34/hook");
    let list = site.get(ENDPOINTS).send().await.expect(200).json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    for good in [
        "https://93.184.216.34:8443/",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/",
        &long[..2048],
    ] {
        site.change_hook(&hook, &json!({ "url": good })).await.expect(200);
    }
}

// Fault matrix 165, 166: at connect
async fn an_address_is_judged_again_when_it_is_told(store: Store) {
    let mut site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let hook = site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let named = receiver.url("/").replace("127.0.0.1", "localhost");
    site.hook(&named, Some(&[BURNED])).await;
    // What was let in while developing is not let in afterwards.
    let config = site.setup.clone().set("webhooks.allow_loopback", false).config;
    std::fs::write(&site.config, config.to_string()).unwrap();
    site.restart(&[]).await;
    let id = site.burn().await;
    let attempts = site.ended(&id, 2).await;
    let failed: Vec<&Value> = attempts
        .iter()
        .filter(|attempt| attempt["status"] == "failed")
        .collect();
    assert_eq!(failed.len(), 2, "{attempts:#?}");
    for attempt in failed {
        assert_eq!(
            (&attempt["error"], &attempt["http_status"]),
            (&json!("address is not allowed"), &Value::Null)
        );
    }
    let tried = site
        .post(&hook.below("test"), &json!({}))
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(tried["result"]["error"], "address is not allowed");
    assert_eq!(receiver.server.connections(), 0);
}

// Fault matrix 167
async fn a_redirect_is_a_failure_and_leads_nowhere(store: Store) {
    let site = Site::hooked(store).await;
    let (receiver, inside) = (Receiver::start().await, Receiver::start().await);
    site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    for status in [301, 302, 303, 307, 308] {
        receiver.answers(status, &[("location", &inside.url("/secret"))], b"");
        let id = site.burn().await;
        let attempts = site.ended(&id, 1).await;
        assert_eq!(statuses(&attempts), ["1 failed", "2 pending"]);
        assert_eq!(
            (&attempts[0]["http_status"], &attempts[0]["error"]),
            (&json!(status), &json!("redirect not followed"))
        );
    }
    assert_eq!(inside.server.connections(), 0);
}

// Fault matrix 168
async fn what_a_receiver_says_is_cut_and_scrubbed(store: Store) {
    let setup = Setup::new(store)
        .hooked()
        .schedule(&[0, 600])
        .set("webhooks.timeout", 3);
    let site = setup.start().await;
    let receiver = Receiver::start().await;
    let hook = site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let said = async |steps: Vec<Step>| -> (String, Value) {
        receiver.does(steps);
        let id = site.burn().await;
        let attempts = site.ended(&id, 1).await;
        let status = attempts[0]["status"].as_str().unwrap().to_owned();
        (status, attempts[0]["response_body"].clone())
    };
    let (_, short) = said(vec![answer(200, &[], "fine: \u{e9}".as_bytes())]).await;
    assert_eq!(short, "fine: \u{e9}");
    let (_, empty) = said(vec![answer(200, &[], b"")]).await;
    assert_eq!(empty, Value::Null);
    let secrets = "key sk_live_abcdefgh12345678, Bearer abcdefgh.ijkl, 4111 1111 1111 1111, ";
    let text = format!("{secrets}{} and the rest", hook.secret);
    let (status, scrubbed) = said(vec![answer(500, &[], text.as_bytes())]).await;
    let scrubbed = scrubbed.as_str().unwrap();
    assert_eq!(status, "failed");
    for secret in ["sk_live", "abcdefgh", "4111", hook.secret.as_str()] {
        assert!(!scrubbed.contains(secret), "{scrubbed}");
    }
    assert!(scrubbed.starts_with("key [redacted]") && scrubbed.ends_with("and the rest"));
    let (_, odd) = said(vec![answer(200, &[], b"a\0b\x1b[31m\xff\xfe")]).await;
    let odd = odd.as_str().unwrap();
    assert!(
        odd.starts_with('a') && !odd.contains('\0') && !odd.contains('\u{1b}'),
        "{odd:?}"
    );
    let long = "x".repeat(5_000_000);
    let (status, cut) = said(vec![answer(200, &[], long.as_bytes())]).await;
    let cut = cut.as_str().unwrap();
    assert_eq!(status, "succeeded");
    assert!(cut.len() <= 4096 && cut.len() > 4000, "{}", cut.len());
    assert!(cut.ends_with("[truncated]"));
    let wide = "\u{1f980}".repeat(3000);
    let (_, cut) = said(vec![answer(200, &[], wide.as_bytes())]).await;
    assert!(cut.as_str().unwrap().len() <= 4096);
    let bomb = vec![answer(
        200,
        &[("content-encoding", "gzip")],
        &[0x1f, 0x8b, 8, 0, 0, 0],
    )];
    let (status, unread) = said(bomb).await;
    assert_eq!((status.as_str(), unread), ("succeeded", Value::Null));
    // A body without an end is read no longer than the attempt may take.
    let mut endless = vec![Step::Bytes(
        b"HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
    )];
    for _ in 0..100 {
        endless.push(Step::Bytes(b"5\r\nmore \r\n".to_vec()));
        endless.push(Step::Pause(std::time::Duration::from_millis(100)));
    }
    let (status, part) = said(endless).await;
    assert_eq!(status, "failed");
    assert!(part.as_str().unwrap().ends_with("[truncated]"));
    let longest = "SELECT MAX(LENGTH(response_body)) FROM webhook_deliveries";
    assert!(site.database.number(longest).await <= 4096);
}

const PROMPT: &str = "prompt-canary-5105105105105100";
const ARGUMENT: &str = "argument-canary-77c1";

// Fault matrix 176, 223
async fn an_event_has_no_prompt_and_no_key(store: Store) {
    let site = Site::hooked(store).await;
    site.grant("1", Some("alice"));
    let receiver = Receiver::start().await;
    let hook = site.hook(&receiver.url("/"), None).await;
    let token = site.token("alice", &json!({})).await;
    site.chat(&chat("tokens", PROMPT)).send().await.expect(200);
    let stream = crate::harness::chat_stream("tokens", PROMPT);
    site.chat(&stream).send().await.expect(200);
    site.post(TOOL, &json!({ "id": ARGUMENT }))
        .once("a-tool")
        .send()
        .await
        .expect(200);
    site.chat_as(&token, "flat").send().await.expect(200);
    site.upstream.always(vec![answer(400, &[], PROMPT.as_bytes())]);
    let failed = site.chat(&chat("tokens", PROMPT)).send().await;
    assert!(failed.status >= 400);
    site.idle().await;
    let told = |kind: &str| {
        let messages = receiver.messages();
        messages
            .iter()
            .filter(|message| message.json()["type"] == kind)
            .count()
    };
    eventually("everything was told", || async {
        (told(BURNED) == 4 && told("credits.burn.failed") == 1).then_some(())
    })
    .await;
    let exported = site.export("events");
    let log = site.service().logged();
    let list = site
        .client
        .request(Method::GET, crate::harness::hooks::HOOK_EVENTS)
        .bearer(&site.key)
        .send()
        .await
        .expect(200)
        .text();
    let bare = hook.secret.trim_start_matches("whsec_").to_owned();
    for canary in [
        PROMPT,
        ARGUMENT,
        "Hello world",
        "provider-key-canary",
        &site.key,
        &token,
        &bare,
    ] {
        for message in receiver.messages() {
            let body = String::from_utf8(message.0.body.clone()).unwrap();
            assert!(!body.contains(canary), "{canary} is in {body}");
        }
        assert!(!exported.contains(canary) && !list.contains(canary), "{canary}");
        assert!(!log.contains(canary), "{canary} is in the log");
    }
}
