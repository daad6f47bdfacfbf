//! The document as a whole: its operations, and references inside it.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::words::{MAX_NAME, cut, text_of};
use super::{ImportSource, Skipped};

/// Longest chain of references that lead to references.
const MAX_CHAIN: usize = 16;
/// Most values that are looked at for a whole document.
const MAX_STEPS: u64 = 20_000_000;
/// Longest reference.
const MAX_REFERENCE: usize = 2000;
/// Longest reference that is repeated in a message.
const MAX_SHOWN: usize = 120;

/// Why an operation is no tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// A reference leaves the document.
    #[error("it refers to {0:?}, which is outside of the document and is not fetched")]
    Outside(String),
    /// A reference leads nowhere.
    #[error("it refers to {0:?}, which is not in the document")]
    Missing(String),
    /// References lead to each other, or values are nested too deeply, or there are too many.
    #[error("its {0} is too large or too deep")]
    TooLarge(&'static str),
    /// It is of a kind that tools cannot be.
    #[error("{0}")]
    Kind(String),
}

impl Refusal {
    pub(super) fn kind(text: &str) -> Self {
        Self::Kind(text.to_owned())
    }
}

/// An operation where it stands.
pub(super) struct Found<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) item: &'a Map<String, Value>,
    pub(super) operation: &'a Map<String, Value>,
}

impl Found<'_> {
    /// Its method and path, for people.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.method.to_ascii_uppercase(), self.path)
    }
}

/// A document.
pub(super) struct Document<'a> {
    root: &'a Value,
    steps: Cell<u64>,
    skipped: RefCell<Vec<Skipped>>,
    /// Names under which its credentials travel, in lower case.
    credentials: BTreeSet<String>,
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let document = Self {
            root,
            steps: Cell::new(0),
            skipped: RefCell::default(),
            credentials: BTreeSet::new(),
        };
        let names = document
            .schemes()
            .filter(|scheme| scheme.get("type").and_then(Value::as_str) == Some("apiKey"))
            .filter_map(|scheme| Some(scheme.get("name")?.as_str()?.to_ascii_lowercase()))
            .collect();
        Self {
            credentials: names,
            ..document
        }
    }

    /// Counts a value that is looked at.
    pub(super) fn step(&self) {
        self.steps.set(self.steps.get().saturating_add(1));
    }

    /// Whether more was looked at than is allowed.
    pub(super) fn is_spent(&self) -> bool {
        self.steps.get() > MAX_STEPS
    }

    /// Whether the document's own credentials travel under `name`.
    pub(super) fn is_credential(&self, name: &str) -> bool {
        self.credentials.contains(&name.to_ascii_lowercase())
    }

    /// What had no operations to speak of.
    pub(super) fn skipped(&self) -> Vec<Skipped> {
        self.skipped.take()
    }

    fn schemes(&self) -> impl Iterator<Item = &'a Value> {
        let schemes = self.root.pointer("/components/securitySchemes");
        let schemes = schemes.and_then(Value::as_object);
        schemes.into_iter().flat_map(Map::values)
    }

    /// What is shown of the document.
    pub(super) fn source(&self, openapi: String) -> ImportSource {
        let info = |name: &str| {
            let value = self.root.pointer(&format!("/info/{name}"));
            value.map_or_else(String::new, |value| text_of(value, 200))
        };
        let mut credentials: Vec<String> = self.schemes().take(20).map(scheme_in_words).collect();
        credentials.sort();
        credentials.dedup();
        ImportSource {
            title: info("title"),
            version: info("version"),
            openapi,
            servers: servers(self.root).into_iter().take(20).collect(),
            credentials,
        }
    }

    /// The servers that hold for operations that name none.
    pub(super) fn servers(&self) -> Vec<String> {
        servers(self.root)
    }

    /// Every operation, in the order of the document.
    pub(super) fn operations(&self) -> Vec<Found<'a>> {
        const METHODS: [&str; 8] = [
            "get", "put", "post", "delete", "options", "head", "patch", "trace",
        ];
        let mut found = Vec::new();
        let paths = self.root.get("paths").and_then(Value::as_object);
        for (path, item) in paths.into_iter().flatten() {
            let item = match self.resolve(item) {
                Ok(item) => item,
                Err(refusal) => {
                    self.skip(path, &refusal.to_string());
                    continue;
                }
            };
            let Some(item) = item.as_object() else { continue };
            for (method, operation) in item {
                if METHODS.contains(&method.as_str())
                    && let Some(operation) = operation.as_object()
                {
                    found.push(Found {
                        method,
                        path,
                        item,
                        operation,
                    });
                }
            }
        }
        let webhooks = self.root.get("webhooks").and_then(Value::as_object);
        for (name, _hook) in webhooks.into_iter().flatten().take(1000) {
            self.skip(name, "it is a webhook: the provider calls, not the caller");
        }
        found
    }

    fn skip(&self, operation: &str, reason: &str) {
        self.skipped.borrow_mut().push(Skipped {
            operation: cut(operation, MAX_SHOWN),
            reason: reason.to_owned(),
        });
    }

    /// What a reference leads to.
    pub(super) fn lookup(&self, reference: &str) -> Result<&'a Value, Refusal> {
        self.step();
        if reference.len() > MAX_REFERENCE {
            return Err(Refusal::TooLarge("reference"));
        }
        let shown = || reference.chars().take(MAX_SHOWN).collect::<String>();
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(Refusal::Outside(shown()));
        };
        if !pointer.starts_with('/') {
            return Err(Refusal::Missing(shown()));
        }
        let found = self.root.pointer(pointer);
        let found = found.or_else(|| self.root.pointer(&percent_decoded(pointer)));
        found.ok_or_else(|| Refusal::Missing(shown()))
    }

    /// The value itself, or what its reference leads to in the end.
    pub(super) fn resolve(&self, value: &'a Value) -> Result<&'a Value, Refusal> {
        let mut value = value;
        for _ in 0..MAX_CHAIN {
            match reference(value) {
                None => return Ok(value),
                Some(reference) => value = self.lookup(reference)?,
            }
        }
        Err(Refusal::TooLarge("chain of references"))
    }
}

/// The reference that a value is, if it is one.
pub(super) fn reference(value: &Value) -> Option<&str> {
    value.get("$ref")?.as_str()
}

/// The URLs that `holder` lists as its servers, with defaults for their variables.
pub(super) fn servers(holder: &Value) -> Vec<String> {
    let servers = holder.get("servers").and_then(Value::as_array);
    let url = |server: &Value| {
        let mut url: String = server.get("url")?.as_str()?.chars().take(500).collect();
        let variables = server.get("variables").and_then(Value::as_object);
        for (name, variable) in variables.into_iter().flatten().take(20) {
            if let Some(default) = variable.get("default").and_then(Value::as_str) {
                let default: String = default.chars().take(500).collect();
                url = url.replace(&format!("{{{name}}}"), &default);
                url = url.chars().take(500).collect();
            }
        }
        Some(cut(&url, 500))
    };
    servers.into_iter().flatten().take(100).filter_map(url).collect()
}

/// How callers identify themselves, for who configures it.
fn scheme_in_words(scheme: &Value) -> String {
    let text = |name: &str| {
        scheme
            .get(name)
            .map_or_else(String::new, |value| text_of(value, MAX_NAME))
    };
    match (text("type").as_str(), text("in").as_str()) {
        ("apiKey", "header") => format!("auth_header = {:?}", text("name")),
        ("apiKey", "query") => format!("auth_query = {:?}", text("name")),
        ("apiKey", place) => format!("a key in the {place} {:?}", text("name")),
        ("http", _) => format!("HTTP {}", text("scheme")),
        (kind, _) => kind.to_owned(),
    }
}

fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let decoded = (*first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(decoded.unwrap_or(*first));
        rest = match decoded {
            Some(_) => after.get(2..).unwrap_or_default(),
            None => after,
        };
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}
