//! The page where an owner or admin decides about an approval, and what it tells nobody else.

use serde_json::json;

use crate::approvals::waits_for;
use crate::harness::browser::form;
use crate::harness::{Reply, Site, Store, micros};
use crate::on_both_stores;

on_both_stores!(an_owner_decides_on_the_page, the_page_tells_strangers_nothing);

const PASSWORD: &str = "a quiet harbour";

async fn an_owner_decides_on_the_page(store: Store) {
    let site = Site::new(store).await;
    site.strict_alice().await;
    let hostile = "<script>alert(1)</script>\" '&amp;";
    let id = waits_for(site.dear(hostile, "k").send().await);
    let page = format!("/approve/{id}");
    let mut browser = site.browser();
    let joined = browser.join(&site.link("owner"), "ada", PASSWORD).await;
    let shown = browser.open(&page).await.expect(200);
    let text = shown.text();
    for part in [
        "tools/fetch",
        "alice",
        "$0.008",
        "Approve",
        "Deny",
        "&lt;script&gt;alert(1)",
        "pending",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("<script"), "{text}");
    let policy = shown.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'self'"),
        "{policy}"
    );
    assert_eq!(shown.header("cache-control"), Some("no-store"));
    // Only a form of our own decides.
    let cookie = browser.cookie.clone().unwrap();
    let decision = [("decision", "approve")];
    let foreign = form(&site.client, &page, &decision).header("cookie", &cookie);
    foreign.clone().send().await.expect(403);
    foreign
        .header("sec-fetch-site", "cross-site")
        .send()
        .await
        .expect(403);
    browser.submit(&page, &[("decision", "maybe")]).await.expect(400);
    assert_eq!(site.approval(&id).await["status"], "pending");
    let done = browser
        .submit(&page, &[("decision", "approve"), ("reason", "go on")])
        .await
        .expect(200);
    assert!(
        done.text().contains("approved") && done.text().contains("go on"),
        "{}",
        done.text()
    );
    assert_eq!(site.noted("approval.approve").await, 1);
    site.dear(hostile, "k").send().await.expect(200);
    assert!(browser.open(&page).await.expect(200).text().contains("consumed"));
    browser.submit(&page, &decision).await.expect(409);

    // Without a fresh second factor the form takes a code.
    let id = waits_for(site.dear("b", "kb").send().await);
    let page = format!("/approve/{id}");
    let subject = crate::harness::people::claims_of(&browser.token().await)["sub"].clone();
    let stale = site.session(
        subject.as_str().unwrap(),
        &json!({ "auth_time": 1_700_000_000, "amr": ["pwd"] }),
    );
    browser.cookie = Some(format!("turnpike_session={stale}"));
    let text = browser.open(&page).await.expect(200).text();
    assert!(text.contains("name=\"code\""), "{text}");
    let refused = browser
        .submit(&page, &[("decision", "deny"), ("code", "000000")])
        .await;
    assert!((400..500).contains(&refused.status), "{}", refused.status);
    assert_eq!(site.approval(&id).await["status"], "pending");
    let code = joined.recovery[0].as_str();
    let done = browser
        .submit(&page, &[("decision", "deny"), ("code", code)])
        .await
        .expect(200);
    assert!(done.text().contains("denied") && done.header("set-cookie").is_some());
    site.dear("b", "kb").send().await.refused(403, "POLICY_DENIED");
    assert_eq!(
        micros(site.balance_of("alice").await["usd"].as_str().unwrap()),
        992_000
    );
}

async fn the_page_tells_strangers_nothing(store: Store) {
    let mut site = Site::new(store).await;
    site.strict_alice().await;
    let id = waits_for(site.dear("secret-argument", "k").send().await);
    let page = format!("/approve/{id}");
    let decision = [("decision", "approve")];
    let tells_nothing = |reply: Reply, status: u16| {
        let text = reply.expect(status).text();
        assert!(
            !text.contains("secret-argument") && !text.contains("alice"),
            "{text}"
        );
        text
    };
    let mut nobody = site.browser();
    let text = tells_nothing(nobody.open(&page).await, 403);
    assert!(
        text.contains("/identity/sign-in") && text.contains(&page),
        "{text}"
    );
    tells_nothing(nobody.submit(&page, &decision).await, 403);
    let mut viewer = site.browser();
    viewer.join(&site.link("viewer"), "vera", PASSWORD).await;
    tells_nothing(viewer.open(&page).await, 403);
    tells_nothing(viewer.submit(&page, &decision).await, 403);
    let (theirs, _key) = site.workspace("Theirs");
    let ours = std::mem::replace(&mut site.tenant, theirs);
    let mut stranger = site.browser();
    stranger.join(&site.link("owner"), "theo", PASSWORD).await;
    let other = tells_nothing(stranger.open(&page).await, 404);
    let unknown = stranger
        .open("/approve/0190a0b0-0000-7000-8000-000000000000")
        .await;
    assert_eq!(unknown.expect(404).text(), other);
    tells_nothing(stranger.submit(&page, &decision).await, 404);
    stranger.open("/approve/x").await.expect(404);
    site.tenant = ours;
    assert_eq!(site.approval(&id).await["status"], "pending");
}
