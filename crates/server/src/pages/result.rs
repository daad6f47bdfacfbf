//! What a payer sees when a session is no longer open.
//!
//! It shows what the store says and credits nothing: opening it, or editing its address, has no effect.

use maud::{Markup, html};

use super::{BonusLine, document, host_of, merchant, session_path};

/// How often the page of a payment in progress is loaded anew.
const REFRESH_S: u32 = 5;

/// The page of a session that is not open, or of none.
#[derive(Clone, Debug)]
pub(crate) struct ResultPage {
    /// Name of the workspace that sells; unknown when nothing was found.
    pub(crate) workspace: Option<String>,
    /// What became of the payment.
    pub(crate) outcome: Outcome,
    /// Where the buyer came from.
    pub(crate) return_url: Option<String>,
    /// Whether the payment was only simulated.
    pub(crate) test_mode: bool,
}

/// What became of a payment. All amounts are formatted: `"$10.61"`, `"10,000"`.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Paid and credited.
    Completed {
        /// What was paid.
        total_usd: String,
        /// What the credits cost.
        credits_usd: String,
        /// How many credits were added, without the bonus.
        credits: String,
        /// The volume bonus.
        bonus: Option<BonusLine>,
    },
    /// Refused by the card's bank.
    Failed {
        /// What was asked for.
        total_usd: String,
        /// The session, while it can still be paid.
        retry_session: Option<String>,
    },
    /// Not paid in time.
    Expired {
        /// What was asked for.
        total_usd: String,
    },
    /// Not decided yet. The page loads itself anew.
    Processing {
        /// What is being paid.
        total_usd: String,
    },
    /// Paid back.
    Refunded {
        /// What had been paid.
        total_usd: String,
    },
    /// No such session.
    NotFound,
}

/// Which mark stands above the text, and its colour.
#[derive(Clone, Copy)]
enum Mark {
    Good,
    Bad,
    Waiting,
    Neutral,
}

impl ResultPage {
    /// The document.
    pub(crate) fn render(&self) -> String {
        let (mark, heading) = self.outcome.heading();
        let title = match &self.workspace {
            Some(workspace) => format!("{heading} – {workspace}"),
            None => heading.to_owned(),
        };
        let refresh_s = matches!(self.outcome, Outcome::Processing { .. }).then_some(REFRESH_S);
        let body = html! {
            main.result {
                @if let Some(workspace) = &self.workspace { (merchant(workspace)) }
                section.panel aria-labelledby="result-title" {
                    (mark.draw())
                    h1 #result-title { (heading) }
                    (self.outcome.text())
                    (self.ways_on())
                }
            }
        };
        document(&title, self.test_mode, refresh_s, &body)
    }

    fn ways_on(&self) -> Markup {
        let retry = match &self.outcome {
            Outcome::Failed { retry_session, .. } => retry_session.as_deref(),
            Outcome::Completed { .. }
            | Outcome::Expired { .. }
            | Outcome::Processing { .. }
            | Outcome::Refunded { .. }
            | Outcome::NotFound => None,
        };
        let back = self
            .return_url
            .as_deref()
            .and_then(|url| host_of(url).map(|host| (url, host)));
        html! {
            @if let Some(session) = retry {
                a.button.primary href=(session_path(session, "")) { "Try again" }
            }
            @match back {
                Some((url, host)) => {
                    a.button.primary[retry.is_none()].quiet[retry.is_some()] href=(url) { "Return to " bdi { (host) } }
                },
                None => @if retry.is_none() { p.hint { "You can close this page." } },
            }
        }
    }
}

impl Outcome {
    fn heading(&self) -> (Mark, &'static str) {
        match self {
            Self::Completed { .. } => (Mark::Good, "Payment complete"),
            Self::Failed { .. } => (Mark::Bad, "Payment declined"),
            Self::Expired { .. } => (Mark::Neutral, "This checkout has expired"),
            Self::Processing { .. } => (Mark::Waiting, "Payment in progress"),
            Self::Refunded { .. } => (Mark::Neutral, "Payment refunded"),
            Self::NotFound => (Mark::Neutral, "Checkout not found"),
        }
    }

    fn text(&self) -> Markup {
        html! {
            @match self {
                Self::Completed { total_usd, credits_usd, credits, bonus } => {
                    p.amount { (total_usd) span.currency { " USD" } }
                    dl.lines {
                        div.line { dt { "Credits added" } dd { (credits) " " span.hint { "(" (credits_usd) ")" } } }
                        @if let Some(bonus) = bonus {
                            div.line.bonus {
                                dt { "Volume bonus" }
                                dd { "+" (bonus.credits) " " span.hint { "(" (bonus.usd) ")" } }
                            }
                        }
                        div.line.total { dt { "Total paid" } dd { (total_usd) } }
                    }
                },
                Self::Failed { total_usd, .. } => {
                    p { "The payment of " strong { (total_usd) } " was declined. You have not been charged and no credits were added." }
                },
                Self::Expired { total_usd } => {
                    p { "The payment of " strong { (total_usd) } " was not made in time. You have not been charged. Start again where you came from." }
                },
                Self::Processing { total_usd } => {
                    p { "The payment of " strong { (total_usd) } " is not confirmed yet. There is no need to pay again: this page updates by itself." }
                },
                Self::Refunded { total_usd } => {
                    p { "The payment of " strong { (total_usd) } " was refunded. Credits that it brought were taken back." }
                },
                Self::NotFound => {
                    p { "There is no checkout at this address. Check the link, or start again where you came from." }
                },
            }
        }
    }
}

impl Mark {
    fn draw(self) -> Markup {
        let (class, path) = match self {
            Self::Good => ("mark good", "M15 24.5l6.5 6.5L34 18"),
            Self::Bad => ("mark bad", "M17 17l14 14M31 17L17 31"),
            Self::Waiting => ("mark waiting", "M24 14v11l7 4"),
            Self::Neutral => ("mark neutral", "M24 14v13M24 33v1"),
        };
        html! {
            svg class=(class) viewBox="0 0 48 48" width="56" height="56" aria-hidden="true" focusable="false" {
                circle cx="24" cy="24" r="22" {}
                path d=(path) fill="none" stroke-width="3.5" stroke-linecap="round" stroke-linejoin="round" {}
            }
        }
    }
}
