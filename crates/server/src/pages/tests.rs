//! What every page keeps: nothing unescaped, nothing inline, nothing unlabelled.

use turnpike_core::money::CreditsPerDollar;

use super::*;

const HOSTILE: &str = "<script>alert('x')</script>\" onload=\"x&amp;";

fn checkout() -> CheckoutPage {
    CheckoutPage {
        workspace: "Northwind Labs".into(),
        session: "cs_test_7Gd2Lk9QpXw4".into(),
        external_user_id: Some("user-42".into()),
        credits_usd: "$10.00".into(),
        credits: "10,000".into(),
        fee_usd: "$0.61".into(),
        total_usd: "$10.61".into(),
        bonus: None,
        cancel_url: Some("https://app.northwind.example/billing?x=1&y=2".into()),
        expires_at: "21 November 2026, 13:05 UTC".into(),
    }
}

fn with_bonus() -> CheckoutPage {
    CheckoutPage {
        external_user_id: None,
        credits_usd: "$100.00".into(),
        credits: "100,000".into(),
        fee_usd: "$3.30".into(),
        total_usd: "$103.30".into(),
        bonus: Some(BonusLine {
            usd: "$5.00".into(),
            credits: "5,000".into(),
        }),
        ..checkout()
    }
}

fn result(outcome: Outcome) -> ResultPage {
    ResultPage {
        workspace: Some("Northwind Labs".into()),
        outcome,
        return_url: Some("https://app.northwind.example/billing".into()),
        test_mode: true,
    }
}

fn outcomes() -> Vec<(&'static str, Outcome)> {
    let total_usd = "$10.61".to_owned();
    vec![
        (
            "completed",
            Outcome::Completed {
                total_usd: total_usd.clone(),
                credits_usd: "$10.00".into(),
                credits: "10,000".into(),
                bonus: Some(BonusLine {
                    usd: "$0.50".into(),
                    credits: "500".into(),
                }),
            },
        ),
        (
            "failed",
            Outcome::Failed {
                total_usd: total_usd.clone(),
                retry_session: Some("cs_1".into()),
            },
        ),
        (
            "failed-for-good",
            Outcome::Failed {
                total_usd: total_usd.clone(),
                retry_session: None,
            },
        ),
        (
            "expired",
            Outcome::Expired {
                total_usd: total_usd.clone(),
            },
        ),
        (
            "processing",
            Outcome::Processing {
                total_usd: total_usd.clone(),
            },
        ),
        ("refunded", Outcome::Refunded { total_usd }),
        ("not-found", Outcome::NotFound),
    ]
}

fn hostile_checkout() -> CheckoutPage {
    let hostile = || HOSTILE.to_owned();
    CheckoutPage {
        workspace: hostile(),
        session: hostile(),
        external_user_id: Some(hostile()),
        credits_usd: hostile(),
        credits: hostile(),
        fee_usd: hostile(),
        total_usd: hostile(),
        bonus: Some(BonusLine {
            usd: hostile(),
            credits: hostile(),
        }),
        cancel_url: Some(format!("https://shop.example/{HOSTILE}")),
        expires_at: hostile(),
    }
}

fn every_page() -> Vec<(String, String)> {
    let mut pages = vec![
        ("checkout".to_owned(), checkout().render()),
        ("checkout-bonus".to_owned(), with_bonus().render()),
        ("checkout-hostile".to_owned(), hostile_checkout().render()),
        ("connect-done".to_owned(), Notice::Done.render()),
        ("connect-again".to_owned(), Notice::Again.render()),
        ("connect-not-found".to_owned(), Notice::NotFound.render()),
    ];
    for (name, text) in [("connect", "Northwind Labs"), ("connect-hostile", HOSTILE)] {
        let page = ConnectPage {
            workspace: text.into(),
            account: text.into(),
            action: "/connect/acct_1?to=00&proof=00".into(),
        };
        pages.push((name.to_owned(), page.render()));
    }
    for (name, outcome) in outcomes() {
        pages.push((name.to_owned(), result(outcome).render()));
    }
    let nowhere = ResultPage {
        workspace: None,
        outcome: Outcome::NotFound,
        return_url: None,
        test_mode: false,
    };
    pages.push(("not-found-live".to_owned(), nowhere.render()));
    let hostile = ResultPage {
        workspace: Some(HOSTILE.into()),
        outcome: Outcome::Failed {
            total_usd: HOSTILE.into(),
            retry_session: Some(HOSTILE.into()),
        },
        return_url: Some("javascript:alert(1)".into()),
        test_mode: true,
    };
    pages.push(("failed-hostile".to_owned(), hostile.render()));
    pages
}

/// The tags of a document, without their angle brackets. No text of ours contains one.
fn tags(html: &str) -> impl Iterator<Item = &str> {
    html.split('<').skip(1).filter_map(|rest| rest.split('>').next())
}

#[test]
fn hostile_text_is_escaped_everywhere() {
    for (name, html) in every_page() {
        let names: Vec<&str> = tags(&html)
            .filter_map(|tag| tag.split([' ', '/']).next())
            .collect();
        assert!(!names.contains(&"script"), "{name}: {html}");
        assert!(!html.contains("alert('x')</"), "{name}");
        assert!(!html.to_lowercase().contains("javascript:"), "{name}");
        for tag in tags(&html) {
            assert_eq!(tag.matches('"').count() % 2, 0, "{name}: {tag}");
            assert!(!tag.contains(" onload="), "{name}: {tag}");
        }
    }
    let html = hostile_checkout().render();
    assert!(html.contains("&lt;script&gt;alert('x')&lt;/script&gt;&quot; onload=&quot;x&amp;amp;"));
    assert!(html.contains("action=\"/checkout/%3Cscript%3Ealert%28%27x%27%29%3C%2Fscript%3E"));
}

#[test]
fn nothing_is_inline_and_the_stylesheet_is_the_only_resource() {
    for (name, html) in every_page() {
        for tag in tags(&html) {
            let element = tag.split(' ').next().unwrap();
            assert!(
                !["style", "script", "img", "iframe", "base"].contains(&element),
                "{name}"
            );
            assert!(!tag.contains(" style="), "{name}: {tag}");
            assert!(!tag.contains(" src="), "{name}: {tag}");
            if element == "link" {
                let known = [
                    "link rel=\"stylesheet\" href=\"/assets/pages.css\"",
                    "link rel=\"icon\" type=\"image/svg+xml\" href=\"/assets/icon.svg\"",
                ];
                assert!(known.contains(&tag), "{name}: {tag}");
            }
        }
    }
    assert!(!STYLESHEET.contains("url(") && !STYLESHEET.contains("@import"));
}

#[test]
fn every_page_is_a_whole_document() {
    for (name, html) in every_page() {
        assert!(html.starts_with("<!DOCTYPE html><html lang=\"en\">"), "{name}");
        assert!(html.ends_with("</html>"), "{name}");
        for part in [
            "<meta charset=\"utf-8\">",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
            "<meta name=\"robots\" content=\"noindex, nofollow\">",
            "<title>",
            "<main ",
            "<h1 ",
        ] {
            assert_eq!(html.matches(part).count(), 1, "{name}: {part}");
        }
        assert!(!html.contains("<title></title>"), "{name}");
    }
}

#[test]
fn every_form_posts_and_has_a_button_with_text() {
    for (name, html) in every_page() {
        for form in html.split("<form ").skip(1) {
            let form = form.split("</form>").next().unwrap();
            assert!(
                form.starts_with("method=\"post\" action=\"/checkout/")
                    || form.starts_with("method=\"post\" action=\"/connect/"),
                "{name}: {form}"
            );
            let button = form.split("<button ").nth(1).unwrap();
            let text = button.split('>').nth(1).unwrap().split('<').next().unwrap();
            assert!(!text.trim().is_empty(), "{name}: {form}");
        }
    }
    let html = checkout().render();
    for part in [
        "action=\"/checkout/cs_test_7Gd2Lk9QpXw4/pay\"",
        "action=\"/checkout/cs_test_7Gd2Lk9QpXw4/decline\"",
        ">Pay $10.61</button>",
        ">Decline</button>",
        "href=\"https://app.northwind.example/billing?x=1&amp;y=2\">Cancel and go back</a>",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn test_mode_is_said_on_the_checkout_and_only_where_it_is_meant() {
    let real = [
        "not-found-live",
        "connect-done",
        "connect-again",
        "connect-not-found",
    ];
    for (name, html) in every_page() {
        assert_eq!(
            html.contains("TEST MODE"),
            !real.contains(&name.as_str()),
            "{name}"
        );
    }
}

#[test]
fn only_web_addresses_become_links() {
    for (url, host) in [
        ("https://shop.example/a?b=c", Some("shop.example")),
        ("http://localhost:3000/done", Some("localhost:3000")),
        ("https://ok@evil.example/", Some("evil.example")),
        ("javascript:alert(1)", None),
        ("JAVASCRIPT://x/%0aalert(1)", None),
        ("data:text/html,x", None),
        ("//evil.example", None),
        ("/billing", None),
        ("", None),
    ] {
        assert_eq!(host_of(url).as_deref(), host, "{url}");
        let mut page = result(Outcome::NotFound);
        page.return_url = Some(url.into());
        assert_eq!(page.render().contains("Return to"), host.is_some(), "{url}");
        let mut page = checkout();
        page.cancel_url = Some(url.into());
        assert_eq!(
            page.render().contains("Cancel and go back"),
            host.is_some(),
            "{url}"
        );
    }
}

#[test]
fn a_declined_payment_can_be_tried_again_only_while_it_is_payable() {
    for (name, outcome) in outcomes() {
        let html = result(outcome).render();
        assert_eq!(
            html.contains("href=\"/checkout/cs_1\">Try again"),
            name == "failed",
            "{name}"
        );
        assert_eq!(
            html.contains("http-equiv=\"refresh\""),
            name == "processing",
            "{name}"
        );
    }
}

#[test]
fn amounts_are_written_for_people() {
    for (micros, text) in [
        (0, "$0.00"),
        (10_000_000, "$10.00"),
        (10_610_000, "$10.61"),
        (500_000, "$0.50"),
        (10_000_001, "$10.000001"),
        (1_234_567_500_000, "$1,234,567.50"),
        (-999_000_000, "-$999.00"),
    ] {
        assert_eq!(dollars(Micros::new(micros)), text);
    }
    let rate = CreditsPerDollar::default();
    for (micros, text) in [
        (10_000_000, "10,000"),
        (1_500, "1.5"),
        (-1_000_000, "-1,000"),
        (0, "0"),
    ] {
        assert_eq!(credits(rate.credits(Micros::new(micros))), text);
    }
}
