//! Requests about keys (specification 2.8, decisions section 3).

use turnpike_core::access::{KeyKind, Scope};
use turnpike_store::KeyPricing;

use crate::error::AppError;
use crate::fields::Fields;
use crate::pricing::{KeyPricingIn, read_key_pricing};

/// Most characters of a name.
const MAX_NAME: usize = 100;
/// More scopes than there are; each may stand twice.
const MAX_SCOPES: usize = 50;
/// Longest overlap of a key and the one in its place, and the usual one.
const MAX_OVERLAP_SECS: i64 = 86_400;

/// A key that somebody wants.
#[derive(Clone, Debug)]
pub(crate) struct NewKey {
    /// Its name, 1..=100 characters.
    pub(crate) name: String,
    /// What it is for.
    pub(crate) kind: KeyKind,
    /// What it may do beside calls.
    pub(crate) scopes: Vec<Scope>,
    /// Markup of its own.
    pub(crate) pricing: KeyPricing,
    /// Slugs or `provider/*` it is narrowed to.
    pub(crate) tools: Option<Vec<String>>,
    /// Seconds until it stops working.
    pub(crate) expires_in: Option<i64>,
}

impl NewKey {
    /// Reads a body.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let known = ["name", "kind", "scopes", "pricing", "tools", "expiresIn"];
        let mut fields = Fields::parse(raw, &known)?;
        let tools = match fields.section("tools", &["enable"])? {
            None => None,
            Some(mut tools) => tools.slugs("enable")?,
        };
        Ok(Self {
            pricing: read_key_pricing(KeyPricingIn::Member(&mut fields))?,
            name: fields.required("name", |fields, name| fields.words(name, 1..=MAX_NAME))?,
            kind: kind(&mut fields)?,
            scopes: scopes(&mut fields)?,
            tools,
            expires_in: fields.integer("expiresIn", i64::MIN..=i64::MAX)?,
        })
    }

    /// Refuses a key that nobody may have.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`.
    pub(crate) fn check(&self) -> Result<(), AppError> {
        let length = self.name.chars().count();
        if !(1..=MAX_NAME).contains(&length) || self.name.chars().any(char::is_control) {
            let message = format!("must be 1 to {MAX_NAME} characters without control characters");
            return Err(AppError::invalid("name", message));
        }
        let allowed: &[Scope] = match self.kind {
            KeyKind::Secret => Scope::ALL,
            KeyKind::Publishable => &[Scope::WidgetRead],
            KeyKind::Sandbox => &[],
        };
        if let Some(scope) = self.scopes.iter().find(|scope| !allowed.contains(scope)) {
            let message = format!("a {} key cannot have the scope {scope}", self.kind);
            return Err(AppError::invalid("scopes", message));
        }
        if self
            .expires_in
            .is_some_and(|secs| !(60..=31_536_000).contains(&secs))
        {
            return Err(AppError::invalid("expiresIn", "must be 60 to 31536000 seconds"));
        }
        Ok(())
    }
}

fn kind(fields: &mut Fields) -> Result<KeyKind, AppError> {
    let Some(text) = fields.text("kind")? else {
        return Ok(KeyKind::Secret);
    };
    KeyKind::parse(&text)
        .ok_or_else(|| AppError::invalid("kind", "must be one of secret, publishable, sandbox"))
}

fn scopes(fields: &mut Fields) -> Result<Vec<Scope>, AppError> {
    let texts = fields.texts("scopes", MAX_SCOPES)?.unwrap_or_default();
    let mut scopes = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        let scope = Scope::parse(text);
        scopes.push(scope.ok_or_else(|| AppError::invalid(&format!("scopes/{at}"), "is no scope"))?);
    }
    Ok(scopes)
}

/// How long a key works beside the one in its place.
pub(super) fn overlap_secs(raw: &[u8]) -> Result<i64, AppError> {
    let mut fields = Fields::parse(raw, &["overlapSeconds"])?;
    let overlap = fields.integer("overlapSeconds", 0..=MAX_OVERLAP_SECS)?;
    Ok(overlap.unwrap_or(MAX_OVERLAP_SECS))
}
