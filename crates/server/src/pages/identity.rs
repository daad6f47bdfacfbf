//! The pages of people who sign in here: joining, second factor, recovery codes, sign-in, and what is theirs.
//!
//! As every page they work without script. A secret stands in a page once: where it was just made.

use maud::{Markup, PreEscaped, html};
use qrcode::{Color, EcLevel, QrCode};
use turnpike_app::AppError;
use turnpike_app::people::Enrolment;

use super::{document, merchant};

/// Modules of quiet zone around a QR code.
const QUIET: usize = 4;

/// A message of the app as a sentence: with a capital and a full stop. A leading path stays what it is about.
pub(crate) fn sentence(message: &str) -> String {
    let plain = message.replacen(": ", " ", usize::from(is_path(message)));
    let mut letters = plain.chars();
    let first: String = letters
        .next()
        .map(char::to_uppercase)
        .into_iter()
        .flatten()
        .collect();
    let stop = if plain.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

/// Whether the message begins with the member that it is about.
fn is_path(message: &str) -> bool {
    ["password: ", "login: ", "code: "]
        .iter()
        .any(|path| message.starts_with(path))
}

pub(super) fn framed(title: &str, body: &Markup) -> String {
    let body = html! {
        main.identity {
            (merchant("Turnpike"))
            section.panel.form aria-labelledby="page-title" { (body) }
        }
    };
    document(&format!("{title} – Turnpike"), false, None, &body)
}

pub(super) fn problem(error: Option<&str>) -> Markup {
    html! { @if let Some(error) = error { p.problem role="alert" { (error) } } }
}

fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}

fn login_field(value: &str) -> Markup {
    html! {
        div.field {
            label for="login" { "E-mail address or name" }
            input #login name="login" type="text" value=(value) maxlength="254" autocomplete="username"
                autocapitalize="none" spellcheck="false" required;
        }
    }
}

fn new_password() -> Markup {
    html! {
        div.field {
            label for="password" { "Password" }
            input #password name="password" type="password" minlength="10" maxlength="128"
                autocomplete="new-password" aria-describedby="password-hint" required;
            p #password-hint .hint { "At least 10 characters. A few words that do not belong together are good." }
        }
        div.field {
            label for="repeated" { "The same password again" }
            input #repeated name="repeated" type="password" minlength="10" maxlength="128"
                autocomplete="new-password" required;
        }
    }
}

pub(super) fn code_field(label: &str, hint: &str, numeric: bool) -> Markup {
    html! {
        div.field {
            label for="code" { (label) }
            input #code .code-input name="code" type="text" inputmode=[numeric.then_some("numeric")] maxlength="64"
                autocomplete="one-time-code" autocapitalize="none" spellcheck="false" aria-describedby="code-hint"
                required autofocus;
            p #code-hint .hint { (hint) }
        }
    }
}

/// Who is invited chooses a login and a password, or joins with the account there is.
#[derive(Clone, Debug)]
pub(crate) struct JoinPage {
    /// The workspace that invites.
    pub(crate) workspace: String,
    /// What the person may do there.
    pub(crate) role: String,
    /// The invitation's token.
    pub(crate) token: String,
    /// What was typed as the login.
    pub(crate) login: String,
    /// The login of who is signed in.
    pub(crate) signed_in: Option<String>,
    /// What was wrong.
    pub(crate) error: Option<String>,
}

impl JoinPage {
    /// The document.
    pub(crate) fn render(&self) -> String {
        let body = html! {
            p.step { "Step 1 of 3" }
            h1 #page-title { "Join " bdi { (self.workspace) } }
            p { "You are invited as " strong { (self.role) } ". Choose what you will sign in with." }
            (problem(self.error.as_deref()))
            form method="post" action="/identity/join" {
                (hidden("token", &self.token))
                (login_field(&self.login))
                (new_password())
                button.primary type="submit" { "Continue" }
            }
            p.small {
                "You have an account here? "
                a href={ "/identity/sign-in?join=" (self.token) } { "Sign in and join with it" } "."
            }
        };
        let title = format!("Join {}", self.workspace);
        match &self.signed_in {
            Some(login) => framed(&title, &self.with_account(login)),
            None => framed(&title, &body),
        }
    }

    fn with_account(&self, login: &str) -> Markup {
        html! {
            h1 #page-title { "Join " bdi { (self.workspace) } }
            p { "You are signed in as " bdi { strong { (login) } } " and invited as " strong { (self.role) } "." }
            form method="post" action="/identity/accept" {
                (hidden("token", &self.token))
                button.primary type="submit" { "Join" }
            }
            a.button.quiet href="/identity" { "Not now" }
        }
    }
}

/// Who forgot everything chooses a password anew.
pub(crate) fn reset(login: &str, token: &str, error: Option<&str>) -> String {
    let body = html! {
        p.step { "Step 1 of 3" }
        h1 #page-title { "Choose a new password" }
        p { "For " bdi { strong { (login) } } ". Then you set up the second factor anew; the old one stops working." }
        (problem(error))
        form method="post" action="/identity/reset" {
            (hidden("token", token))
            // For password managers.
            input.away type="text" name="login" value=(login) autocomplete="username" readonly tabindex="-1" aria-hidden="true";
            (new_password())
            button.primary type="submit" { "Continue" }
        }
    };
    framed("Choose a new password", &body)
}

/// What goes into the authenticator app, and the first code back.
pub(crate) fn enrolment(enrolment: &Enrolment, error: Option<&str>) -> Result<String, AppError> {
    let qr = qr_code(&enrolment.secret.url)?;
    let body = html! {
        p.step { "Step 2 of 3" }
        h1 #page-title { "Set up the second factor" }
        p { "Scan this with an authenticator app on your phone, such as Aegis, Google Authenticator or 1Password." }
        figure.qr { (qr) }
        details.by-hand {
            summary { "Type it in instead" }
            dl.facts {
                div { dt { "Account" } dd { bdi { (enrolment.login) } } }
                div { dt { "Secret" } dd { code #secret { (enrolment.secret.text) } } }
                div { dt { "Kind" } dd { "Time-based, 6 digits, 30 seconds" } }
            }
        }
        (problem(error))
        form method="post" action="/identity/enrolment" {
            (hidden("ticket", &enrolment.ticket))
            (code_field("Code from the app", "Six digits. They change every 30 seconds.", true))
            button.primary type="submit" { "Confirm" }
        }
    };
    Ok(framed("Set up the second factor", &body))
}

/// A QR code as one path, black on white whatever the colours of the page: what scans it wants that.
fn qr_code(text: &str) -> Result<Markup, AppError> {
    let code =
        QrCode::with_error_correction_level(text, EcLevel::M).map_err(|error| AppError::internal(&error))?;
    let width = code.width();
    let colors = code.to_colors();
    let square = |index: usize| {
        let (x, y) = (index.checked_rem(width)?, index.checked_div(width)?);
        Some(format!("M{} {}h1v1h-1z", x + QUIET, y + QUIET))
    };
    let dark = colors
        .iter()
        .enumerate()
        .filter(|(_, color)| **color == Color::Dark);
    let path: Vec<String> = dark.filter_map(|(index, _)| square(index)).collect();
    let path = path.concat();
    let side = width + 2 * QUIET;
    Ok(html! {
        svg viewBox={ "0 0 " (side) " " (side) } role="img" aria-label="QR code of the secret" shape-rendering="crispEdges" {
            rect width=(side) height=(side) fill="#fff" {}
            path d=(PreEscaped(path)) fill="#000" {}
        }
    })
}

/// Recovery codes, shown once.
pub(crate) fn recovery(codes: &[String]) -> String {
    let body = html! {
        p.step { "Step 3 of 3" }
        h1 #page-title { "Keep your recovery codes" }
        p { "If you lose your phone, each of these signs you in once, in the place of a code from the app." }
        ol.codes { @for code in codes { li { code { (code) } } } }
        p.notice { strong { "They are not shown again." } " Print them, or put them into a password manager." }
        a.button.primary href="/identity" { "I have kept them" }
    };
    framed("Recovery codes", &body)
}

/// What follows a sign-in: an invitation, or a request of an agent; empty where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Onward<'a> {
    /// The invitation's token.
    pub(crate) join: &'a str,
    /// The agent's request, sealed.
    pub(crate) authorize: &'a str,
}

impl Onward<'_> {
    fn fields(self) -> Markup {
        html! {
            @if !self.join.is_empty() { (hidden("join", self.join)) }
            @if !self.authorize.is_empty() { (hidden("authorize", self.authorize)) }
        }
    }
}

/// Login and password.
pub(crate) fn sign_in(login: &str, onward: &Onward<'_>, error: Option<&str>) -> String {
    let body = html! {
        h1 #page-title { "Sign in" }
        (problem(error))
        form method="post" action="/identity/sign-in" {
            (onward.fields())
            (login_field(login))
            div.field {
                label for="password" { "Password" }
                input #password name="password" type="password" maxlength="128" autocomplete="current-password" required;
            }
            button.primary type="submit" { "Continue" }
        }
        p.small { "You have lost your password or all your codes? Who operates this service can let you begin anew." }
    };
    framed("Sign in", &body)
}

/// The second factor of who knew the password.
pub(crate) fn code(ticket: &str, onward: &Onward<'_>, error: Option<&str>) -> String {
    let body = html! {
        h1 #page-title { "Second factor" }
        (problem(error))
        form method="post" action="/identity/sign-in/code" {
            (hidden("ticket", ticket))
            (onward.fields())
            (code_field("Code from your authenticator app", "Or one of your recovery codes.", false))
            button.primary type="submit" { "Sign in" }
        }
        p.small { a href="/identity/sign-in" { "Begin again" } }
    };
    framed("Second factor", &body)
}

/// A code again, for what needs a fresh second factor.
pub(crate) fn step_up(error: Option<&str>) -> String {
    let body = html! {
        h1 #page-title { "Confirm it is you" }
        p { "For ten minutes you can then do what needs a fresh second factor." }
        (problem(error))
        form method="post" action="/identity/step-up" {
            (code_field("Code from your authenticator app", "Or one of your recovery codes.", false))
            button.primary type="submit" { "Confirm" }
        }
        a.button.quiet href="/identity" { "Not now" }
    };
    framed("Confirm it is you", &body)
}

/// A code, for other recovery codes.
pub(crate) fn renewal(error: Option<&str>) -> String {
    let body = html! {
        h1 #page-title { "Make new recovery codes" }
        p { "The codes that you have stop working." }
        (problem(error))
        form method="post" action="/identity/recovery-codes" {
            (code_field("Code from your authenticator app", "Or one of your recovery codes.", false))
            button.primary type="submit" { "Make new codes" }
        }
        a.button.quiet href="/identity" { "Not now" }
    };
    framed("Make new recovery codes", &body)
}

/// Something that ends here.
pub(crate) fn message(heading: &str, text: &str, next: Option<(&str, &str)>) -> String {
    let body = html! {
        h1 #page-title { (heading) }
        p { (text) }
        @if let Some((path, label)) = next { a.button.quiet href=(path) { (label) } }
    };
    framed(heading, &body)
}

/// What is shown to who is signed in. Every text is shown as it is.
#[derive(Clone, Debug)]
pub(crate) struct HomePage {
    /// What the person signs in with.
    pub(crate) login: String,
    /// Who it is in sessions and memberships.
    pub(crate) subject: String,
    /// Where the person is a member.
    pub(crate) workspaces: Vec<Workspace>,
    /// When the second factor was shown.
    pub(crate) factor_at: String,
    /// Whether that is at most ten minutes ago.
    pub(crate) is_fresh: bool,
    /// Recovery codes that were not used.
    pub(crate) recovery_codes: i64,
    /// The dashboard session.
    pub(crate) token: String,
}

/// A workspace of a person.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// Its name.
    pub(crate) name: String,
    /// Its id.
    pub(crate) id: String,
    /// What the person may do there.
    pub(crate) role: String,
    /// Its state.
    pub(crate) status: String,
}

impl HomePage {
    /// The document.
    pub(crate) fn render(&self) -> String {
        let body = html! {
            main.identity.wide {
                (merchant("Turnpike"))
                section.panel.form aria-labelledby="page-title" {
                    h1 #page-title { "Signed in as " bdi { (self.login) } }
                    dl.facts {
                        div { dt { "Subject" } dd { code { (self.subject) } } }
                        div {
                            dt { "Second factor shown" }
                            dd {
                                (self.factor_at) " "
                                @if self.is_fresh { span.tag.good { "fresh" } } @else { span.tag { "older than 10 minutes" } }
                            }
                        }
                        div {
                            dt { "Recovery codes left" }
                            dd { (self.recovery_codes) " · " a href="/identity/recovery-codes" { "make new ones" } }
                        }
                    }
                    a.button.primary[!self.is_fresh].quiet[self.is_fresh] href="/identity/step-up" { "Confirm it is you" }
                }
                (self.workspaces())
                (self.token())
                form.sign-out method="post" action="/identity/sign-out" {
                    button.quiet type="submit" { "Sign out everywhere" }
                }
            }
        };
        document("Your account – Turnpike", false, None, &body)
    }

    fn workspaces(&self) -> Markup {
        html! {
            section.panel.form aria-labelledby="workspaces-title" {
                h2 #workspaces-title { "Workspaces" }
                @if self.workspaces.is_empty() { p.hint { "You are a member of none. Ask an owner to invite you." } }
                ul.workspaces {
                    @for workspace in &self.workspaces {
                        li {
                            div { strong { bdi { (workspace.name) } } " " span.tag { (workspace.role) }
                                @if workspace.status != "active" { " " span.tag.bad { (workspace.status) } } }
                            code.hint { (workspace.id) }
                        }
                    }
                }
            }
        }
    }

    fn token(&self) -> Markup {
        html! {
            section.panel.form aria-labelledby="token-title" {
                h2 #token-title { "Dashboard session" }
                p {
                    "Send it to the API as " code { "Authorization: Bearer …" }
                    ". It can do what you can, lasts 12 hours from sign-in, and ends when you sign out."
                }
                label.hidden-label for="token" { "Session token" }
                textarea #token .token rows="4" readonly spellcheck="false" { (self.token) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_sentences() {
        for (message, shown) in [
            (
                "password: must be 10 to 128 characters",
                "Password must be 10 to 128 characters.",
            ),
            (
                "the login or the password is not right",
                "The login or the password is not right.",
            ),
            ("too long: begin again", "Too long: begin again."),
            ("Done.", "Done."),
            ("", "."),
        ] {
            assert_eq!(sentence(message), shown);
        }
    }

    #[test]
    fn what_people_choose_is_escaped_and_shown_as_it_is() {
        let hostile = "<script>\"'&</script>";
        let page = JoinPage {
            workspace: hostile.to_owned(),
            role: "owner".to_owned(),
            token: "a\"b".to_owned(),
            login: hostile.to_owned(),
            signed_in: None,
            error: Some(hostile.to_owned()),
        };
        let home = HomePage {
            login: hostile.to_owned(),
            subject: hostile.to_owned(),
            workspaces: vec![Workspace {
                name: hostile.to_owned(),
                id: hostile.to_owned(),
                role: hostile.to_owned(),
                status: hostile.to_owned(),
            }],
            factor_at: "never".to_owned(),
            is_fresh: false,
            recovery_codes: 9,
            token: hostile.to_owned(),
        };
        let onward = Onward {
            join: hostile,
            authorize: "a\"b",
        };
        for html in [
            page.render(),
            home.render(),
            sign_in(hostile, &onward, Some(hostile)),
            code(hostile, &onward, None),
        ] {
            assert!(!html.contains("<script") && !html.contains("style="), "{html}");
            assert!(!html.contains("a\"b"), "{html}");
        }
    }

    #[test]
    fn a_qr_code_is_one_path() {
        let svg = qr_code("otpauth://totp/Turnpike:ada?secret=GEZDGNBVGY3TQOJQ")
            .unwrap()
            .into_string();
        assert_eq!(svg.matches("<path").count(), 1);
        assert!(
            svg.contains("M4 4h1v1h-1z"),
            "the finder pattern begins in the corner"
        );
    }
}
