//! The page where somebody decides about an approval: who wants what, for how much, with which arguments.

use maud::{Markup, html};
use turnpike_core::ledger::approval::{ApprovalKind, ApprovalState};

use super::identity::{code_field, framed, problem};

/// A wish as it is shown. Every text is shown as it is.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalPage {
    /// The workspace.
    pub(crate) workspace: String,
    /// The approval.
    pub(crate) id: String,
    /// What it is about.
    pub(crate) kind: ApprovalKind,
    /// Where it stands.
    pub(crate) state: ApprovalState,
    /// Whether it was approved and not used yet.
    pub(crate) can_be_taken_back: bool,
    /// The tool or model.
    pub(crate) slug: String,
    /// Whose wish it is.
    pub(crate) owner: String,
    /// The most that the call may cost, in dollars and in credits.
    pub(crate) amount: Option<(String, String)>,
    /// The call's arguments.
    pub(crate) args: Option<String>,
    /// Why, in the words of who asks.
    pub(crate) reason: Option<String>,
    /// When it was asked for.
    pub(crate) asked_at: String,
    /// Until when it can be decided or used.
    pub(crate) expires_at: String,
    /// When it was decided, and by whom.
    pub(crate) decided: Option<(String, String)>,
    /// Why so.
    pub(crate) decision: Option<String>,
    /// Whether the second factor was shown in the last ten minutes.
    pub(crate) is_fresh: bool,
    /// What was wrong.
    pub(crate) error: Option<String>,
}

impl ApprovalPage {
    /// The document.
    pub(crate) fn render(&self) -> String {
        let heading = match self.kind {
            ApprovalKind::ToolAccess => "Access to a tool",
            ApprovalKind::Spend | ApprovalKind::Quote => "A call that needs your approval",
        };
        let body = html! {
            p.step { bdi { (self.workspace) } }
            h1 #page-title { (heading) }
            (problem(self.error.as_deref()))
            (self.facts())
            @if self.state == ApprovalState::Pending { (self.form(true)) }
            @else if self.can_be_taken_back { (self.form(false)) }
            p.small { "Approval " span.id { (self.id) } }
        };
        framed(heading, &body)
    }

    fn facts(&self) -> Markup {
        let good = matches!(self.state, ApprovalState::Approved | ApprovalState::Consumed);
        let bad = matches!(self.state, ApprovalState::Denied);
        html! {
            dl.facts {
                div { dt { "Status" } dd { span.tag.good[good].bad[bad] { (self.state) } } }
                div { dt { "End user" } dd { bdi { (self.owner) } } }
                div { dt { "Tool" } dd { bdi { code { (self.slug) } } } }
                @if let Some((usd, credits)) = &self.amount {
                    div { dt { "Costs at most" } dd { strong { (usd) } " " span.hint { "(" (credits) " credits)" } } }
                }
                @if let Some(reason) = &self.reason { div { dt { "Reason" } dd { bdi { (reason) } } } }
                div { dt { "Asked for" } dd { (self.asked_at) } }
                @if let Some((at, by)) = &self.decided { div { dt { "Decided" } dd { (at) " by " bdi { (by) } } } }
                @if let Some(decision) = &self.decision { div { dt { "Because" } dd { bdi { (decision) } } } }
                @if matches!(self.state, ApprovalState::Pending) || self.can_be_taken_back {
                    div { dt { "Until" } dd { (self.expires_at) } }
                }
            }
            @if let Some(args) = &self.args {
                div.field {
                    label for="args" { "With these arguments" }
                    textarea #args .token rows="6" readonly { (args) }
                }
            }
            @if self.kind == ApprovalKind::ToolAccess && self.state == ApprovalState::Pending {
                p.hint { "Approved, the end user may call this tool from now on, within its other limits." }
            }
        }
    }

    fn form(&self, undecided: bool) -> Markup {
        html! {
            form method="post" action={ "/approve/" (self.id) } {
                div.field {
                    label for="reason" { "Your reason, if you want to give one" }
                    input #reason name="reason" type="text" maxlength="500" autocomplete="off";
                }
                @if !self.is_fresh {
                    (code_field("Code from your app", "Or one of your recovery codes.", false))
                }
                @if undecided {
                    button.primary type="submit" name="decision" value="approve" { "Approve" }
                    button.quiet type="submit" name="decision" value="deny" { "Deny" }
                } @else {
                    button.quiet type="submit" name="decision" value="deny" { "Take back" }
                }
            }
        }
    }
}

/// What is said instead of a page that cannot be shown.
pub(crate) fn message(heading: &str, text: &str) -> String {
    let body = html! {
        h1 #page-title { (heading) }
        p { (text) }
    };
    framed(heading, &body)
}

/// Who is not signed in: where to do that, and the way back to `path`.
pub(crate) fn sign_in(path: &str) -> String {
    let heading = "Sign in to decide";
    let body = html! {
        h1 #page-title { (heading) }
        p { "Owners and admins of the workspace decide here. Sign in, then come back to this page." }
        a.button.primary href="/identity/sign-in" { "Sign in" }
        a.button.quiet href=(path) { "I am signed in: go on" }
    };
    framed(heading, &body)
}

/// Where another provider signs people in.
pub(crate) fn elsewhere() -> String {
    let text = "People of this service sign in with another provider, which has no session here. Decide in your \
                dashboard, or with POST /api/credits/approvals/{approvalId}/approve and /deny.";
    message("Decide elsewhere", text)
}
