//! The page on which the development processor connects an account, and what follows a processor's own page.

use maud::html;

use super::{document, merchant};

/// The development processor's page of an account.
#[derive(Clone, Debug)]
pub(crate) struct ConnectPage {
    /// Name of the workspace that is to be paid.
    pub(crate) workspace: String,
    /// The processor's id of the account.
    pub(crate) account: String,
    /// Where the form goes: this page's own address.
    pub(crate) action: String,
}

impl ConnectPage {
    /// The document.
    pub(crate) fn render(&self) -> String {
        let body = html! {
            main.result {
                (merchant(&self.workspace))
                section.panel aria-labelledby="connect-title" {
                    h1 #connect-title { "Connect payouts" }
                    p { "Payouts of " strong { bdi { (self.workspace) } } " will go to a simulated account." }
                    p.hint { "No details are needed here, and no money arrives anywhere." }
                    form method="post" action=(self.action) {
                        button.primary type="submit" { "Connect" }
                    }
                    p.small { "Account " span.id { (self.account) } }
                }
            }
        };
        document(
            &format!("Connect payouts – {}", self.workspace),
            true,
            None,
            &body,
        )
    }
}

/// What is said to whom a processor sends back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The account's owner is done at the processor.
    Done,
    /// The processor's page is of no use any more.
    Again,
    /// There is no such page.
    NotFound,
}

impl Notice {
    /// The document.
    pub(crate) fn render(self) -> String {
        let (heading, text) = match self {
            Self::Done => (
                "Account details sent",
                "The payment processor now checks them. The workspace's payout page shows when payouts begin.",
            ),
            Self::Again => (
                "This page has expired",
                "Start connecting the account again from the workspace's payout page.",
            ),
            Self::NotFound => (
                "Page not found",
                "There is no account to connect at this address. Start again from the workspace's payout page.",
            ),
        };
        let body = html! {
            main.result {
                section.panel aria-labelledby="notice-title" {
                    h1 #notice-title { (heading) }
                    p { (text) }
                    p.hint { "You can close this page." }
                }
            }
        };
        document(heading, false, None, &body)
    }
}
