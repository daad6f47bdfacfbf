//! Settings in a request's body.

use std::collections::BTreeMap;

use turnpike_core::ledger::hold::StreamSettlement;
use turnpike_core::pricing::Markup;
use turnpike_store::{LowBalanceSettings, TenantPricing, TenantSettings, TopupSettings};

use super::rules::{MAX_LIST, MAX_RULES};
use crate::error::AppError;
use crate::fields::Fields;
use crate::pricing::{MARKUP, read_markup};

const MEMBERS: [&str; 7] = [
    "streamSettlement",
    "requireIdempotencyKey",
    "pricing",
    "catalog",
    "lowBalance",
    "topups",
    "allowedOrigins",
];

/// Settings as they were sent.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// Everything but prices and catalogue.
    rest: TenantSettings,
    pricing: Option<TenantPricing>,
    catalog: Option<BTreeMap<String, bool>>,
}

impl Document {
    /// What stands afterwards where `current` stood.
    pub(super) fn onto(self, current: &TenantSettings) -> TenantSettings {
        TenantSettings {
            pricing: self.pricing.unwrap_or_else(|| current.pricing.clone()),
            catalog: self.catalog.unwrap_or_else(|| current.catalog.clone()),
            ..self.rest
        }
    }
}

/// Reads a body; a member that is null counts as absent.
pub(super) fn read(raw: &[u8]) -> Result<Document, AppError> {
    let mut fields = Fields::parse(raw, &MEMBERS)?.without_nulls();
    let rest = TenantSettings {
        stream_settlement: settlement(&mut fields)?,
        require_idempotency_key: fields.boolean("requireIdempotencyKey")?,
        low_balance: low_balance(&mut fields)?,
        topups: topups(&mut fields)?,
        allowed_origins: fields.texts("allowedOrigins", MAX_LIST)?.unwrap_or_default(),
        ..TenantSettings::default()
    };
    let catalog = fields.switches("catalog", MAX_RULES)?;
    Ok(Document {
        rest,
        pricing: pricing(&mut fields)?,
        catalog: catalog.map(BTreeMap::from_iter),
    })
}

fn settlement(fields: &mut Fields) -> Result<Option<StreamSettlement>, AppError> {
    match fields.text("streamSettlement")?.as_deref() {
        None => Ok(None),
        Some("fixed") => Ok(Some(StreamSettlement::Fixed)),
        Some("usage") => Ok(Some(StreamSettlement::Usage)),
        Some(_) => Err(AppError::invalid("streamSettlement", "must be fixed or usage")),
    }
}

fn low_balance(fields: &mut Fields) -> Result<LowBalanceSettings, AppError> {
    let Some(section) = fields.section("lowBalance", &["poolUsd", "endUserUsd"])? else {
        return Ok(LowBalanceSettings::default());
    };
    let mut section = section.without_nulls();
    Ok(LowBalanceSettings {
        pool_usd: section.usd("poolUsd")?,
        end_user_usd: section.usd("endUserUsd")?,
    })
}

fn topups(fields: &mut Fields) -> Result<TopupSettings, AppError> {
    let Some(section) = fields.section("topups", &["minUsd", "maxUsd", "urlHosts"])? else {
        return Ok(TopupSettings::default());
    };
    let mut section = section.without_nulls();
    Ok(TopupSettings {
        min_usd: section.usd("minUsd")?,
        max_usd: section.usd("maxUsd")?,
        url_hosts: section.texts("urlHosts", MAX_LIST)?.unwrap_or_default(),
    })
}

fn pricing(fields: &mut Fields) -> Result<Option<TenantPricing>, AppError> {
    let Some(section) = fields.section("pricing", &["global", "providers", "endpoints"])? else {
        return Ok(None);
    };
    let mut section = section.without_nulls();
    let global = section.section("global", &MARKUP)?;
    Ok(Some(TenantPricing {
        global: global.map_or(Ok(Markup::NONE), |global| {
            read_markup(&mut global.without_nulls())
        })?,
        providers: markups(&mut section, "providers")?,
        endpoints: markups(&mut section, "endpoints")?,
    }))
}

fn markups(section: &mut Fields, name: &str) -> Result<BTreeMap<String, Markup>, AppError> {
    let sections = section.sections(name, MAX_RULES, &MARKUP)?.unwrap_or_default();
    sections
        .into_iter()
        .map(|(name, section)| Ok((name, read_markup(&mut section.without_nulls())?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use turnpike_core::errors::ErrorCode;

    use super::*;

    fn put(body: &Value) -> Result<TenantSettings, AppError> {
        Ok(read(body.to_string().as_bytes())?.onto(&TenantSettings::default()))
    }

    #[test]
    fn settings_are_shown_as_they_were_sent() {
        let body = json!({
            "streamSettlement": "usage", "requireIdempotencyKey": true,
            "pricing": {
                "global": { "markupBps": 100, "flatMarkupUsdc": "0.5" },
                "providers": { "up": { "markupBps": 0 } },
                "endpoints": { "up/org/model:free": { "flatMarkupUsdc": "0" } },
            },
            "catalog": { "up/*": false, "up/a": true },
            "lowBalance": { "poolUsd": "5", "endUserUsd": "1" },
            "topups": { "minUsd": "2", "maxUsd": "3", "urlHosts": ["shop.example"] },
            "allowedOrigins": ["https://app.example"],
        });
        let settings = put(&body).unwrap();
        assert_eq!(serde_json::to_value(&settings).unwrap(), body);
        // Silence about prices and catalogue leaves them.
        let rest = read(b"{\"streamSettlement\":null}").unwrap().onto(&settings);
        assert_eq!(
            (&rest.pricing, &rest.catalog),
            (&settings.pricing, &settings.catalog)
        );
        assert_eq!((rest.stream_settlement, rest.allowed_origins.len()), (None, 0));
        let cleared = read(b"{\"pricing\":{},\"catalog\":{}}").unwrap().onto(&settings);
        assert_eq!(cleared, TenantSettings::default());
        assert_eq!(put(&json!({})).unwrap(), TenantSettings::default());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_path() {
        let refused = |body: Value| {
            let error = put(&body).unwrap_err();
            let path = error.members["details"][0]["path"].as_str().unwrap().to_owned();
            (error.code, path)
        };
        let (unknown, wrong) = (ErrorCode::UnknownField, ErrorCode::ValidationError);
        for (body, code, path) in [
            (json!({ "pricings": {} }), unknown, "pricings"),
            (json!({ "topups": { "min": "1" } }), unknown, "topups.min"),
            (json!({ "pricing": { "keys": {} } }), unknown, "pricing.keys"),
            (
                json!({ "pricing": { "endpoints": { "a/b": { "bps": 1 } } } }),
                unknown,
                "pricing.endpoints.a/b.bps",
            ),
            (
                json!({ "pricing": { "global": { "markupBps": 100_001 } } }),
                wrong,
                "pricing.global.markupBps",
            ),
            (
                json!({ "pricing": { "global": { "flatMarkupUsdc": "-1" } } }),
                wrong,
                "pricing.global.flatMarkupUsdc",
            ),
            (json!({ "catalog": { "a/b": 1 } }), wrong, "catalog"),
            (json!({ "streamSettlement": "never" }), wrong, "streamSettlement"),
            (
                json!({ "lowBalance": { "poolUsd": 1 } }),
                wrong,
                "lowBalance.poolUsd",
            ),
        ] {
            assert_eq!(refused(body.clone()), (code, path.to_owned()), "{body}");
        }
    }
}
