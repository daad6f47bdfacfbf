//! Pages for people who pay and are paid: the development checkout and connection, and what follows them.
//!
//! Plain functions from values to a whole HTML document. They work without JavaScript and under a content
//! security policy of `default-src 'none'; style-src 'self'; form-action 'self'`: no script, no inline
//! style, one stylesheet at [`STYLESHEET_PATH`]. Everything that comes from outside is escaped, and an
//! address is a link only when it is http or https.
//!
//! Routes, headers and the state of a session are left to others.

pub(crate) mod approval;
mod checkout;
mod connect;
pub(crate) mod identity;
pub(crate) mod oauth;
mod result;
#[cfg(test)]
mod tests;

use http::Uri;
use maud::{DOCTYPE, Markup, html};
use turnpike_core::money::{Credits, Micros};

pub(crate) use checkout::CheckoutPage;
pub(crate) use connect::{ConnectPage, Notice};
pub(crate) use result::{Outcome, ResultPage};

/// The stylesheet of every page, `text/css; charset=utf-8`.
pub(crate) const STYLESHEET: &str = include_str!("style.css");
/// Where the pages expect [`STYLESHEET`].
pub(crate) const STYLESHEET_PATH: &str = "/assets/pages.css";
/// The icon of every page, `image/svg+xml`.
pub(crate) const ICON: &str = include_str!("icon.svg");
/// Where the pages expect [`ICON`].
pub(crate) const ICON_PATH: &str = "/assets/icon.svg";

/// Credits on top of those that are paid for, as shown.
#[derive(Clone, Debug)]
pub(crate) struct BonusLine {
    /// What they are worth: `"$0.50"`.
    pub(crate) usd: String,
    /// How many: `"500"`.
    pub(crate) credits: String,
}

/// An amount as people read it: `"$1,234.50"`, and every digit of an amount finer than a cent.
pub(crate) fn dollars(amount: Micros) -> String {
    let text = amount.to_string();
    let (sign, magnitude) = text.strip_prefix('-').map_or(("", &*text), |rest| ("-", rest));
    let (whole, fraction) = magnitude.split_once('.').unwrap_or((magnitude, ""));
    format!("{sign}${}.{fraction:0<2}", grouped(whole))
}

/// Credits as people read them: `"10,000"`.
pub(crate) fn credits(amount: Credits) -> String {
    let text = amount.to_string();
    let (sign, magnitude) = text.strip_prefix('-').map_or(("", &*text), |rest| ("-", rest));
    match magnitude.split_once('.') {
        Some((whole, fraction)) => format!("{sign}{}.{fraction}", grouped(whole)),
        None => format!("{sign}{}", grouped(magnitude)),
    }
}

fn grouped(digits: &str) -> String {
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The address of one of a session's pages; `action` is empty or begins with `/`.
fn session_path(session: &str, action: &str) -> String {
    let mut path = String::from("/checkout/");
    for byte in session.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            path.push(char::from(byte));
        } else {
            path.push('%');
            path.push_str(&hex::encode_upper([byte]));
        }
    }
    path + action
}

/// The host (and port) of an address that may be a link, `None` for anything but http and https.
fn host_of(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return None;
    }
    let host = uri.host().filter(|host| !host.is_empty())?;
    Some(match uri.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// A whole document around `body`.
fn document(title: &str, test_mode: bool, refresh_s: Option<u32>, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex, nofollow";
                // Keeps the session's address from the sites that are linked; `no-referrer` would send the
                // forms with `Origin: null`.
                meta name="referrer" content="same-origin";
                meta name="color-scheme" content="light dark";
                @if let Some(seconds) = refresh_s { meta http-equiv="refresh" content=(seconds); }
                title { (title) }
                link rel="stylesheet" href=(STYLESHEET_PATH);
                link rel="icon" type="image/svg+xml" href=(ICON_PATH);
            }
            body {
                @if test_mode { (test_banner()) }
                (body)
            }
        }
    }
    .into_string()
}

fn test_banner() -> Markup {
    html! {
        aside.banner aria-label="Test mode" {
            p {
                strong.banner-tag { "TEST MODE" }
                strong { " — no real money moves." }
                " This page is part of a development server."
            }
        }
    }
}

/// Who is paid: the workspace's name beside its first letter.
fn merchant(workspace: &str) -> Markup {
    let initial: String = workspace
        .chars()
        .find(|c| c.is_alphanumeric())
        .map_or_else(|| "•".to_owned(), |first| first.to_uppercase().collect());
    html! {
        p.merchant {
            span.monogram aria-hidden="true" { (initial) }
            bdi.merchant-name { (workspace) }
        }
    }
}
