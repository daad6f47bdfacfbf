//! The checkout of the development processor: what is bought, what it costs, pay or decline.
//!
//! It asks for no card: there is nothing to pay with. Whether the session is still payable is decided when a
//! form arrives, not here.

use maud::{Markup, html};

use super::{BonusLine, document, host_of, merchant, session_path};

/// A session that can be paid. All amounts are formatted: `"$10.61"`, `"10,000"`.
#[derive(Clone, Debug)]
pub(crate) struct CheckoutPage {
    /// Name of the workspace that sells.
    pub(crate) workspace: String,
    /// Session id, `cs_…`.
    pub(crate) session: String,
    /// The end user the credits are for; without one, the workspace's own balance.
    pub(crate) external_user_id: Option<String>,
    /// What the credits cost.
    pub(crate) credits_usd: String,
    /// How many credits that is.
    pub(crate) credits: String,
    /// The processing fee.
    pub(crate) fee_usd: String,
    /// What is paid.
    pub(crate) total_usd: String,
    /// The volume bonus.
    pub(crate) bonus: Option<BonusLine>,
    /// Where "Cancel and go back" leads.
    pub(crate) cancel_url: Option<String>,
    /// Until when the session can be paid, as text.
    pub(crate) expires_at: String,
}

impl CheckoutPage {
    /// The document.
    pub(crate) fn render(&self) -> String {
        let title = format!("Pay {} to {}", self.total_usd, self.workspace);
        let body = html! {
            main.checkout {
                section.summary aria-labelledby="summary-title" { div.column { (self.summary()) } }
                section.payment aria-labelledby="payment-title" { div.column { (self.payment()) } }
            }
        };
        document(&title, true, None, &body)
    }

    fn summary(&self) -> Markup {
        html! {
            (merchant(&self.workspace))
            h1 #summary-title { "Add credits" }
            p.amount { (self.total_usd) span.currency { " USD" } }
            dl.lines {
                div.line {
                    dt { (self.credits_usd) " in credits " span.hint { "(" (self.credits) " credits)" } }
                    dd { (self.credits_usd) }
                }
                div.line {
                    dt { "Processing fee" }
                    dd { (self.fee_usd) }
                }
                @if let Some(bonus) = &self.bonus {
                    div.line.bonus {
                        dt { "Volume bonus " span.hint { "(" (bonus.credits) " credits worth " (bonus.usd) ")" } }
                        dd { "Free" }
                    }
                }
                div.line.total {
                    dt { "Total due" }
                    dd { (self.total_usd) }
                }
            }
            p.recipient {
                "Credits go to "
                @match &self.external_user_id {
                    Some(user) => { bdi.id { (user) } },
                    None => { "the workspace balance of " bdi { (self.workspace) } },
                }
                "."
            }
        }
    }

    fn payment(&self) -> Markup {
        html! {
            h2 #payment-title { "Payment" }
            div.card {
                (card_mark())
                div {
                    p.card-name { "Test card " span.card-number { "•••• 4242" } }
                    p.hint { "No card details are needed here." }
                }
            }
            form method="post" action=(session_path(&self.session, "/pay")) {
                button.primary type="submit" { "Pay " (self.total_usd) }
            }
            form method="post" action=(session_path(&self.session, "/decline")) {
                button.quiet type="submit" aria-describedby="decline-hint" { "Decline" }
                p #decline-hint .hint.centred { "Decline simulates a card that is refused." }
            }
            @if let Some(url) = self.cancel_url.as_deref().filter(|url| host_of(url).is_some()) {
                p.centred { a href=(url) { "Cancel and go back" } }
            }
            p.small { "This page can be paid until " (self.expires_at) "." br; "Session " span.id { (self.session) } }
        }
    }
}

fn card_mark() -> Markup {
    html! {
        svg.card-mark viewBox="0 0 48 32" width="48" height="32" aria-hidden="true" focusable="false" {
            rect.card-face x="1" y="1" width="46" height="30" rx="5" {}
            rect.card-stripe x="1" y="8" width="46" height="6" {}
            rect.card-chip x="7" y="20" width="12" height="5" rx="1.5" {}
        }
    }
}
