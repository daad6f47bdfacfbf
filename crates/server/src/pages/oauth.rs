//! The pages where a member connects an agent. What a client calls itself is shown as it is, and said to be unchecked.

use maud::{Markup, html};

use super::{document, merchant};

/// A workspace that can be chosen.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its id.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// Whether the member may let the agent spend from the workspace's own balance.
    pub(crate) whole: bool,
}

/// What a member is asked. Every text is shown as it is.
#[derive(Clone, Debug)]
pub(crate) struct ConsentPage {
    /// What the client calls itself.
    pub(crate) client: String,
    /// Where the answer goes.
    pub(crate) destination: String,
    /// Whether it wants to spend.
    pub(crate) executes: bool,
    /// Whether it wants to stay connected.
    pub(crate) lasts: bool,
    /// Who is signed in.
    pub(crate) login: String,
    /// The request, sealed.
    pub(crate) request: String,
    /// Where the member may connect agents.
    pub(crate) workspaces: Vec<Place>,
    /// What was chosen before.
    pub(crate) chosen: String,
    /// The end user who pays.
    pub(crate) external_user_id: String,
    /// The ceiling.
    pub(crate) max_usd: String,
    /// How many days it lasts.
    pub(crate) days: String,
    /// Whether a code is needed.
    pub(crate) wants_code: bool,
    /// What was wrong.
    pub(crate) error: Option<String>,
}

fn framed(title: &str, body: &Markup) -> String {
    let body = html! {
        main.identity {
            (merchant("Turnpike"))
            section.panel.form aria-labelledby="page-title" { (body) }
        }
    };
    document(&format!("{title} – Turnpike"), false, None, &body)
}

/// The first page, which a client opened: it leads on to the next.
pub(crate) fn leads_on(client: &str, next: &str) -> String {
    let body = html! {
        h1 #page-title { "Connect an agent" }
        p { bdi { strong { (client) } } " wants to use the tools of this service in your name." }
        a.button.primary href=(next) { "Continue" }
        p.small { "You did not begin this? Then close this page; nothing happens." }
    };
    framed("Connect an agent", &body)
}

impl ConsentPage {
    /// The document.
    pub(crate) fn render(&self) -> String {
        let body = html! {
            h1 #page-title { "Connect " bdi { (self.client) } "?" }
            p { "You are signed in as " bdi { strong { (self.login) } } "." }
            (self.facts())
            @if let Some(error) = &self.error { p.problem role="alert" { (error) } }
            form method="post" action="/identity/authorize" {
                input type="hidden" name="request" value=(self.request);
                @if self.workspaces.is_empty() {
                    p.problem role="alert" {
                        "You can connect no agent: that takes an owner, admin or developer of a workspace. "
                        "Ask an owner or admin to do it, or to give you the role."
                    }
                } @else {
                    (self.choices())
                    button.primary type="submit" name="answer" value="agree" { "Connect" }
                }
                button.quiet type="submit" name="answer" value="decline" formnovalidate { "Decline" }
            }
        };
        framed("Connect an agent", &body)
    }

    fn facts(&self) -> Markup {
        html! {
            dl.facts {
                div { dt { "The name" } dd { "is what the agent calls itself; nobody has checked it" } }
                div { dt { "The answer goes to" } dd { bdi { strong { (self.destination) } } } }
                div { dt { "It may" } dd {
                    "find tools and read what they cost, its balance and the results of its calls"
                    @if self.executes { ", and call tools, paid from the balance that you choose" }
                } }
                @if !self.lasts { div { dt { "For" } dd { "one hour" } } }
            }
        }
    }

    fn choices(&self) -> Markup {
        html! {
            div.field {
                label for="workspace" { "Workspace" }
                select #workspace name="workspace" required {
                    @for place in &self.workspaces {
                        option value=(place.id) selected[place.id == self.chosen] {
                            (place.name) @if !place.whole { " (for an end user only)" }
                        }
                    }
                }
            }
            div.field {
                label for="external_user_id" { "End user who pays" }
                input #external_user_id name="external_user_id" type="text" value=(self.external_user_id)
                    maxlength="200" autocomplete="off" autocapitalize="none" spellcheck="false"
                    aria-describedby="user-hint";
                p #user-hint .hint {
                    "Empty: the workspace's own balance pays, which takes an owner or admin."
                }
            }
            @if self.executes {
                div.field {
                    label for="max_usd" { "Most it may spend, in dollars" }
                    input #max_usd name="max_usd" type="text" inputmode="decimal" value=(self.max_usd) maxlength="20"
                        autocomplete="off" aria-describedby="max-hint";
                    p #max-hint .hint { "For as long as it is connected. Empty: the balance alone limits it." }
                }
            }
            @if self.lasts {
                div.field {
                    label for="days" { "Connected for, in days" }
                    input #days name="days" type="text" inputmode="numeric" value=(self.days) maxlength="3"
                        autocomplete="off" aria-describedby="days-hint" required;
                    p #days-hint .hint { "1 to 365. You can end it at any time." }
                }
            }
            @if self.wants_code {
                div.field {
                    label for="code" { "Code from your authenticator app" }
                    input #code .code-input name="code" type="text" maxlength="64" autocomplete="one-time-code"
                        autocapitalize="none" spellcheck="false" aria-describedby="code-hint" required;
                    p #code-hint .hint { "You have not shown it for ten minutes. A recovery code will do, too." }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_calls_itself_is_escaped() {
        let hostile = "<script>\"'&</script>";
        let page = ConsentPage {
            client: hostile.to_owned(),
            destination: hostile.to_owned(),
            executes: true,
            lasts: true,
            login: hostile.to_owned(),
            request: "a\"b".to_owned(),
            workspaces: vec![Place {
                id: hostile.to_owned(),
                name: hostile.to_owned(),
                whole: false,
            }],
            chosen: hostile.to_owned(),
            external_user_id: hostile.to_owned(),
            max_usd: hostile.to_owned(),
            days: hostile.to_owned(),
            wants_code: true,
            error: Some(hostile.to_owned()),
        };
        for html in [page.render(), leads_on(hostile, "a\"b")] {
            assert!(!html.contains("<script") && !html.contains("style="), "{html}");
            assert!(!html.contains("a\"b"), "{html}");
        }
    }
}
