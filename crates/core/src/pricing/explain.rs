//! The price explanation that a tenant sees (specification 2.9): what a call costs and which configuration
//! level supplied each part of the markup.

use serde::Serialize;

use super::{Charge, EffectiveMarkup, MarkupSource, PriceError, Rates, charge};
use crate::money::{Credits, CreditsPerDollar, Micros, PicoUsd};

/// What is known of the provider's price before the call.
#[derive(Clone, Copy, Debug)]
pub enum ExplainBase<'a> {
    /// Nothing: the provider quotes each call.
    Live,
    /// The price of every call.
    Fixed(PicoUsd),
    /// The price of a call with these arguments.
    Metered(PicoUsd),
    /// The most that a call with this body can cost, which is what is held for it.
    AtMost(PicoUsd),
    /// Only what the parts of a call cost, because the call is not known.
    Rates(&'a Rates),
}

impl ExplainBase<'_> {
    const fn amount(&self) -> Option<PicoUsd> {
        match self {
            Self::Fixed(base) | Self::Metered(base) | Self::AtMost(base) => Some(*base),
            Self::Live | Self::Rates(_) => None,
        }
    }
}

/// What an explanation is made of.
#[derive(Clone, Copy, Debug)]
pub struct ExplainInput<'a> {
    /// The provider's id.
    pub provider: &'a str,
    /// The endpoint's name within the provider.
    pub endpoint: &'a str,
    /// `provider/endpoint`.
    pub slug: &'a str,
    /// The upstream HTTP method.
    pub method: &'a str,
    /// Whether the tenant has enabled the endpoint.
    pub enabled: bool,
    /// The tenant's denomination.
    pub credits_per_dollar: CreditsPerDollar,
    /// The markup that applies.
    pub markup: EffectiveMarkup,
    /// What is known of the provider's price.
    pub base: ExplainBase<'a>,
}

/// The `explain` object. Money is `null` when the price is not known before the call.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the members that the specification names"
)]
pub struct Explain {
    /// The provider's id.
    pub provider: String,
    /// The endpoint's name within the provider.
    pub endpoint: String,
    /// `provider/endpoint`.
    pub slug: String,
    /// The upstream HTTP method.
    pub method: String,
    /// Priced live per call.
    pub dynamic: bool,
    /// The price depends on the arguments.
    pub estimated: bool,
    /// Enabled for the tenant.
    pub enabled: bool,
    /// Credits in one US dollar.
    pub credits_per_dollar: i64,
    /// The percentage markup in basis points.
    pub markup_bps: u32,
    /// Who supplied the percentage.
    pub markup_source: MarkupSource,
    /// Who supplied the fixed part.
    pub flat_source: MarkupSource,
    /// Some level above the general one supplied a part.
    pub overridden: bool,
    /// The provider's price.
    pub base_usd: Option<Micros>,
    /// The provider's price in credits.
    pub base_credits: Option<Credits>,
    /// The percentage markup.
    pub markup_usd: Option<Micros>,
    /// The fixed markup.
    pub flat_markup_usd: Option<Micros>,
    /// The tenant's margin.
    pub margin_usd: Option<Micros>,
    /// The tenant's margin in credits.
    pub margin_credits: Option<Credits>,
    /// What the customer pays.
    pub effective_usd: Option<Micros>,
    /// What the customer pays, in credits.
    pub effective_credits: Option<Credits>,
    /// All of it in one sentence.
    pub human_summary: String,
}

impl Explain {
    /// Builds the explanation; the amounts are those of the charge for the same base.
    ///
    /// # Errors
    /// As [`charge`].
    pub fn new(input: &ExplainInput<'_>) -> Result<Self, PriceError> {
        let rate = input.credits_per_dollar;
        let markup = &input.markup;
        let charge = input.base.amount().map(|base| charge(base, markup)).transpose()?;
        Ok(Self {
            provider: input.provider.to_owned(),
            endpoint: input.endpoint.to_owned(),
            slug: input.slug.to_owned(),
            method: input.method.to_owned(),
            dynamic: matches!(input.base, ExplainBase::Live),
            estimated: !matches!(input.base, ExplainBase::Live | ExplainBase::Fixed(_)),
            enabled: input.enabled,
            credits_per_dollar: rate.get(),
            markup_bps: markup.bps,
            markup_source: markup.markup_source,
            flat_source: markup.flat_source,
            overridden: markup.overridden,
            base_usd: charge.map(|c| c.base),
            base_credits: charge.map(|c| rate.credits(c.base)),
            markup_usd: charge.map(|c| c.markup),
            flat_markup_usd: charge.map(|c| c.flat),
            margin_usd: charge.map(|c| c.margin),
            margin_credits: charge.map(|c| rate.credits(c.margin)),
            effective_usd: charge.map(|c| c.effective),
            effective_credits: charge.map(|c| rate.credits(c.effective)),
            human_summary: summary(input, charge.as_ref()),
        })
    }
}

fn summary(input: &ExplainInput<'_>, charge: Option<&Charge>) -> String {
    let disabled = if input.enabled { "" } else { " (disabled)" };
    let percent = percent(input.markup.bps);
    let slug = input.slug;
    let flat = input.markup.flat;
    let (verb, charge) = match (&input.base, charge) {
        (ExplainBase::Fixed(_), Some(charge)) => ("costs", charge),
        (ExplainBase::Metered(_), Some(charge)) => ("costs about", charge),
        (ExplainBase::AtMost(_), Some(charge)) => ("costs at most", charge),
        (ExplainBase::Rates(rates), _) => {
            let rates: Vec<String> = rates
                .entries()
                .map(|(dimension, _, text)| format!("{dimension} {text}"))
                .collect();
            return format!(
                "{slug}{disabled} costs by what a call uses: {}; {percent}% and {flat} USD are added to that price.",
                rates.join(", ")
            );
        }
        (ExplainBase::Live, _) | (_, None) => {
            return format!(
                "{slug}{disabled} is priced by the provider for each call; {percent}% and {flat} USD are added to that price."
            );
        }
    };
    let credits = input.credits_per_dollar.credits(charge.effective);
    format!(
        "{slug}{disabled} {verb} {} USD ({credits} credits): {} USD base, {} USD markup ({percent}%) and {} USD flat.",
        charge.effective, charge.base, charge.markup, charge.flat
    )
}

/// Basis points as a percentage: 3333 is `33.33`.
fn percent(bps: u32) -> String {
    // A bps is a hundredth of a percent: the same digits as that many millionths of 10^-4.
    Micros::new(i64::from(bps).saturating_mul(10_000)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pricing::{Markup, MarkupLevels};

    fn input(base: Option<i128>) -> ExplainInput<'static> {
        let levels = MarkupLevels {
            endpoint: Markup {
                markup_bps: Some(3333),
                flat: None,
            },
            global: Markup {
                markup_bps: Some(1),
                flat: Some(Micros::new(1)),
            },
            ..MarkupLevels::default()
        };
        ExplainInput {
            provider: "acme",
            endpoint: "search",
            slug: "acme/search",
            method: "GET",
            enabled: true,
            credits_per_dollar: CreditsPerDollar::default(),
            markup: levels.resolve(),
            base: base.map_or(ExplainBase::Live, |base| ExplainBase::Fixed(PicoUsd::new(base))),
        }
    }

    #[test]
    fn the_object_has_exactly_the_members_of_the_specification() {
        let explain = Explain::new(&input(Some(2_000_000_000))).unwrap();
        insta::assert_json_snapshot!(explain, @r#"
        {
          "provider": "acme",
          "endpoint": "search",
          "slug": "acme/search",
          "method": "GET",
          "dynamic": false,
          "estimated": false,
          "enabled": true,
          "creditsPerDollar": 1000,
          "markupBps": 3333,
          "markupSource": "endpoint",
          "flatSource": "global",
          "overridden": true,
          "baseUsd": "0.002",
          "baseCredits": "2",
          "markupUsd": "0.000667",
          "flatMarkupUsd": "0.000001",
          "marginUsd": "0.000668",
          "marginCredits": "0.668",
          "effectiveUsd": "0.002668",
          "effectiveCredits": "2.668",
          "humanSummary": "acme/search costs 0.002668 USD (2.668 credits): 0.002 USD base, 0.000667 USD markup (33.33%) and 0.000001 USD flat."
        }
        "#);
    }

    // Fault matrix 182
    #[test]
    fn a_live_price_has_rules_but_no_amounts() {
        let json = serde_json::to_value(Explain::new(&input(None)).unwrap()).unwrap();
        for (name, value) in json.as_object().unwrap() {
            let money = name != "creditsPerDollar" && (name.ends_with("Usd") || name.ends_with("Credits"));
            assert_eq!(value.is_null(), money, "{name}");
        }
        assert_eq!(json["markupBps"], 3333);
        assert_eq!(
            json["humanSummary"],
            "acme/search is priced by the provider for each call; 33.33% and 0.000001 USD are added to that price."
        );
    }

    #[test]
    fn what_is_not_known_before_the_call_is_no_amount() {
        let rates = Rates {
            input: Some(PicoUsd::new(1_000_000)),
            output: Some(PicoUsd::new(2_000_000)),
            ..Rates::default()
        };
        let mut input = input(None);
        input.base = ExplainBase::Rates(&rates);
        let explain = Explain::new(&input).unwrap();
        assert!(explain.estimated && !explain.dynamic && explain.effective_usd.is_none());
        assert_eq!(
            explain.human_summary,
            "acme/search costs by what a call uses: input 1 USD per million tokens, output 2 USD per million tokens; \
             33.33% and 0.000001 USD are added to that price."
        );
        for (base, estimated, verb) in [
            (ExplainBase::Fixed(PicoUsd::new(3_000_000)), false, "costs 0"),
            (
                ExplainBase::Metered(PicoUsd::new(3_000_000)),
                true,
                "costs about 0",
            ),
            (
                ExplainBase::AtMost(PicoUsd::new(3_000_000)),
                true,
                "costs at most 0",
            ),
        ] {
            input.base = base;
            let explain = Explain::new(&input).unwrap();
            assert_eq!((explain.estimated, explain.dynamic), (estimated, false));
            assert_eq!(explain.base_usd, Some(Micros::new(3)));
            assert!(explain.human_summary.contains(verb), "{}", explain.human_summary);
        }
    }
}
