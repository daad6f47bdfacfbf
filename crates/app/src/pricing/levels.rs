//! The levels that markup comes from, and reading one from a request's body.

use turnpike_core::pricing::{EffectiveMarkup, MAX_MARKUP_BPS, Markup, MarkupLevels};
use turnpike_store::{ApiKey, KeyPricing, Tenant};

use crate::error::AppError;
use crate::fields::Fields;

/// The members of one level's markup.
pub(crate) const MARKUP: [&str; 2] = ["markupBps", "flatMarkupUsdc"];
/// The members of a key's prices.
const KEY_PRICING: [&str; 3] = ["markupBps", "flatMarkupUsdc", "endpoints"];
/// Most endpoints that a key has prices of its own for.
const MAX_KEY_ENDPOINTS: usize = 200;

/// The markup on a call of an end user through `key`: most specific level first.
pub(crate) fn end_user_markup(
    tenant: &Tenant,
    key: Option<&ApiKey>,
    provider: &str,
    slug: &str,
) -> EffectiveMarkup {
    let own = key.map_or(Markup::NONE, |key| Markup {
        markup_bps: key.pricing.markup_bps,
        flat: key.pricing.flat_markup_usdc,
    });
    let for_endpoint = key.and_then(|key| key.pricing.endpoints.get(slug).copied());
    let for_endpoint = for_endpoint.unwrap_or(Markup::NONE);
    let pricing = &tenant.settings.pricing;
    let levels = MarkupLevels {
        // Within the key its entry for the endpoint is the more specific one.
        key: Markup {
            markup_bps: for_endpoint.markup_bps.or(own.markup_bps),
            flat: for_endpoint.flat.or(own.flat),
        },
        endpoint: pricing.endpoints.get(slug).copied().unwrap_or(Markup::NONE),
        provider: pricing.providers.get(provider).copied().unwrap_or(Markup::NONE),
        global: pricing.global,
    };
    levels.resolve()
}

/// Takes [`MARKUP`] out of a body.
pub(crate) fn read_markup(fields: &mut Fields) -> Result<Markup, AppError> {
    let bps = fields.integer("markupBps", 0..=i64::from(MAX_MARKUP_BPS))?;
    Ok(Markup {
        markup_bps: bps.and_then(|bps| u32::try_from(bps).ok()),
        flat: fields.usd("flatMarkupUsdc")?,
    })
}

/// A key's prices: the body `raw` as a whole, or its member `pricing`.
pub(crate) enum KeyPricingIn<'a> {
    Body(&'a [u8]),
    Member(&'a mut Fields),
}

/// Reads a key's prices (specification 2.8).
pub(crate) fn read_key_pricing(from: KeyPricingIn<'_>) -> Result<KeyPricing, AppError> {
    let mut fields = match from {
        KeyPricingIn::Body(raw) => Fields::parse(raw, &KEY_PRICING)?,
        KeyPricingIn::Member(fields) => match fields.section("pricing", &KEY_PRICING)? {
            Some(section) => section,
            None => return Ok(KeyPricing::default()),
        },
    };
    let own = read_markup(&mut fields)?;
    let sections = fields.sections("endpoints", MAX_KEY_ENDPOINTS, &MARKUP)?;
    let endpoints = sections
        .unwrap_or_default()
        .into_iter()
        .map(|(slug, mut section)| Ok((slug, read_markup(&mut section)?)))
        .collect::<Result<_, AppError>>()?;
    Ok(KeyPricing {
        markup_bps: own.markup_bps,
        flat_markup_usdc: own.flat,
        endpoints,
    })
}
