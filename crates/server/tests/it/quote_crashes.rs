//! A process that is killed around the hold that uses a quote and an approval.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::approvals::APPROVALS;
use crate::crash::short_lived;
use crate::harness::{Site, Store, TOOL};
use crate::on_both_stores;

on_both_stores!(
    what_was_not_sent_gives_its_quote_and_approval_back,
    what_may_have_been_sent_has_used_them,
);

struct Quoted {
    token: String,
    quote: String,
    approval: String,
}

/// A call that is quoted and approved.
async fn quoted(site: &Site, id: &str) -> Quoted {
    let body = json!({ "slug": "tools/fetch", "args": { "id": id }, "externalUserId": "alice", "expiresInSeconds": 600 });
    let estimate = site.estimate(&body).await;
    let token = estimate["approvalToken"].as_str().unwrap().to_owned();
    let waiting = call(site, id, &token)
        .send()
        .await
        .refused(403, "APPROVAL_REQUIRED")
        .json();
    let approval = waiting["approvalId"].as_str().unwrap().to_owned();
    let path = format!("{APPROVALS}/{approval}/approve");
    let owner = site.owner();
    site.as_member(&owner, Method::POST, &path)
        .send()
        .await
        .expect(200);
    let quote = estimate["estimate"]["id"].as_str().unwrap().to_owned();
    Quoted {
        token,
        quote,
        approval,
    }
}

fn call(site: &Site, id: &str, token: &str) -> crate::harness::Sender {
    let call = site.post(TOOL, &json!({ "id": id })).paid_by("alice");
    call.header("x-svc-approval-token", token).once(id)
}

async fn crash(site: &mut Site, point: &str, quoted: &Quoted) {
    let fail = vec![("TURNPIKE_FAILPOINT".to_owned(), point.to_owned())];
    site.restart(&fail).await;
    let cut = call(site, point, &quoted.token).try_send().await;
    assert!(cut.is_err(), "{point}: the call was answered: {cut:?}");
    let service = site.service.as_mut().unwrap();
    assert!(!service.wait(Duration::from_secs(10)).await.success());
    assert!(service.logged().contains(&format!("failpoint reached: {point}")));
    site.restart(&[]).await;
    site.idle().await;
}

async fn stands(site: &Site, quoted: &Quoted) -> (i64, String) {
    let path = format!("{APPROVALS}/{}", quoted.approval);
    let approval = site.get(&path).send().await.expect(200).json();
    let open = site
        .database
        .number("SELECT COUNT(*) FROM quotes WHERE state = 0")
        .await;
    (open, approval["approval"]["status"].as_str().unwrap().to_owned())
}

async fn what_was_not_sent_gives_its_quote_and_approval_back(store: Store) {
    let mut site = short_lived(store).await;
    site.grant("1", Some("alice"));
    site.limit("alice", &json!({ "requireApprovalAboveUsd": "0" }))
        .await;
    for point in ["after-hold", "before-dispatch-marker"] {
        let quoted = quoted(&site, point).await;
        crash(&mut site, point, &quoted).await;
        assert_eq!(
            stands(&site, &quoted).await,
            (1, "approved".to_owned()),
            "{point}"
        );
        assert_eq!(site.upstream.count(), usize::from(point != "after-hold"));
        call(&site, point, &quoted.token).send().await.expect(200);
        assert_eq!(
            stands(&site, &quoted).await,
            (0, "consumed".to_owned()),
            "{point}"
        );
    }
}

async fn what_may_have_been_sent_has_used_them(store: Store) {
    let mut site = short_lived(store).await;
    site.grant("1", Some("alice"));
    site.limit("alice", &json!({ "requireApprovalAboveUsd": "0" }))
        .await;
    for point in ["after-dispatch-marker", "before-capture", "after-capture"] {
        let quoted = quoted(&site, point).await;
        crash(&mut site, point, &quoted).await;
        assert_eq!(
            stands(&site, &quoted).await,
            (0, "consumed".to_owned()),
            "{point}"
        );
        let seen = site.upstream.count();
        let same = call(&site, point, &quoted.token).send().await;
        if point == "after-capture" {
            same.expect(200);
        } else {
            same.refused(504, "UPSTREAM_TIMEOUT");
        }
        let other = site
            .post(TOOL, &json!({ "id": point }))
            .paid_by("alice")
            .once("other");
        let other = other.header("x-svc-approval-token", &quoted.token).send().await;
        other.refused(409, "QUOTE_REAPPROVAL_REQUIRED");
        let path = format!("{}/{}", crate::tool_quotes::ESTIMATE, quoted.quote);
        let cancel = site.client.request(Method::DELETE, &path).bearer(&site.key);
        cancel.send().await.refused(409, "REQUEST_FAILED");
        assert_eq!(site.upstream.count(), seen, "{point}");
    }
}
