//! A browser as far as the pages need one: it keeps the cookie, sends forms and reads what stands in a page.

use http::Method;
use totp_rs::{Builder, Secret, Totp};

use super::people::seconds;
use super::{Client, Reply, Site};

/// A visitor of the pages.
#[derive(Clone, Debug)]
pub struct Browser {
    client: Client,
    /// The session cookie.
    pub cookie: Option<String>,
}

/// Somebody who joined: what the person knows and has.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The login.
    pub login: String,
    /// The password.
    pub password: String,
    /// The secret in the authenticator app.
    pub secret: String,
    /// The recovery codes.
    pub recovery: Vec<String>,
}

/// The text between the first `from` and the next `to`.
pub fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text
        .split_once(from)
        .unwrap_or_else(|| panic!("no {from:?} in {text}"));
    rest.split_once(to).unwrap().0
}

/// The value of a hidden field.
pub fn hidden(page: &str, name: &str) -> String {
    between(page, &format!("type=\"hidden\" name=\"{name}\" value=\""), "\"").to_owned()
}

impl Joined {
    /// The code of the step that begins `steps` after this one.
    pub fn code(&self, steps: i64) -> String {
        let secret = Secret::try_from_base32(self.secret.replace(' ', "")).unwrap();
        let totp: Totp = Builder::new().with_secret(secret).build_noncompliant();
        let at = u64::try_from(seconds() + 30 * steps).unwrap();
        totp.generate(at).to_string()
    }
}

impl Browser {
    /// One that was never here.
    pub fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            cookie: None,
        }
    }

    async fn send(&mut self, sender: super::Sender) -> Reply {
        let sender = match &self.cookie {
            Some(cookie) => sender.header("cookie", cookie),
            None => sender,
        };
        let reply = sender.send().await;
        if let Some(set) = reply.header("set-cookie") {
            let (pair, rest) = set.split_once(';').unwrap();
            for attribute in ["Path=/;", "HttpOnly", "SameSite=Strict"] {
                assert!(rest.contains(attribute), "{set}");
            }
            let gone = rest.contains("Max-Age=0");
            self.cookie = (!gone).then(|| pair.to_owned());
        }
        reply
    }

    /// Opens a page.
    pub async fn open(&mut self, path: &str) -> Reply {
        let sender = self.client.request(Method::GET, path);
        self.send(sender).await
    }

    /// Sends a form of a page of ours.
    pub async fn submit(&mut self, path: &str, members: &[(&str, &str)]) -> Reply {
        let sender = form(&self.client, path, members).header("sec-fetch-site", "same-origin");
        self.send(sender).await
    }

    /// Joins by the link `path`, to the end.
    pub async fn join(&mut self, path: &str, login: &str, password: &str) -> Joined {
        let page = self.open(path).await.expect(200).text();
        let token = hidden(&page, "token");
        let chosen = [
            ("token", token.as_str()),
            ("login", login),
            ("password", password),
            ("repeated", password),
        ];
        let page = self.submit("/identity/join", &chosen).await.expect(200).text();
        self.enrol(&page, login, password).await
    }

    /// Confirms the second factor that `page` shows.
    pub async fn enrol(&mut self, page: &str, login: &str, password: &str) -> Joined {
        let mut joined = Joined {
            login: login.to_owned(),
            password: password.to_owned(),
            secret: between(page, "<code id=\"secret\">", "<").to_owned(),
            recovery: Vec::new(),
        };
        let (ticket, code) = (hidden(page, "ticket"), joined.code(0));
        let confirmed = [("ticket", ticket.as_str()), ("code", code.as_str())];
        let page = self
            .submit("/identity/enrolment", &confirmed)
            .await
            .expect(200)
            .text();
        let list = between(&page, "<ol class=\"codes\">", "</ol>");
        joined.recovery = list
            .split("<code>")
            .skip(1)
            .map(|rest| rest.split_once('<').unwrap().0.to_owned())
            .collect();
        assert_eq!(joined.recovery.len(), 10);
        joined
    }

    /// The first step of signing in.
    pub async fn give_password(&mut self, login: &str, password: &str) -> Reply {
        self.submit("/identity/sign-in", &[("login", login), ("password", password)])
            .await
    }

    /// Signs in with `code` as the second factor.
    pub async fn sign_in(&mut self, who: &Joined, code: &str) -> Reply {
        let page = self
            .give_password(&who.login, &who.password)
            .await
            .expect(200)
            .text();
        let ticket = hidden(&page, "ticket");
        self.submit("/identity/sign-in/code", &[("ticket", &ticket), ("code", code)])
            .await
    }

    /// The dashboard session that the page shows.
    pub async fn token(&mut self) -> String {
        let page = self.open("/identity").await.expect(200).text();
        between(&page, "<textarea", "</textarea>")
            .split_once('>')
            .unwrap()
            .1
            .to_owned()
    }
}

/// A form, from wherever.
pub fn form(client: &Client, path: &str, members: &[(&str, &str)]) -> super::Sender {
    let body: String = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(members)
        .finish();
    client
        .request(Method::POST, path)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body)
}

impl Site {
    /// A browser at the service.
    pub fn browser(&self) -> Browser {
        Browser::new(&self.client)
    }

    /// The path of a link with which somebody joins the workspace as `role`.
    pub fn link(&self, role: &str) -> String {
        let args = ["member", "invite", "--tenant", &self.tenant, "--role", role];
        let invited = self.operate(&args);
        path_of(invited["url"].as_str().unwrap())
    }
}

/// The path of a URL.
pub fn path_of(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap();
    format!("/{}", rest.split_once('/').unwrap().1)
}
