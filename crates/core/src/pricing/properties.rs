//! Properties of prices that hold for any rates, usage and markup.

#![expect(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]

use proptest::prelude::*;

use crate::money::{Micros, PicoUsd};
use crate::usage::Usage;

use super::{Catalogue, EffectiveMarkup, ModelPrice, PriceError, Rates, Tier, charge};

fn rate() -> impl Strategy<Value = Option<PicoUsd>> {
    prop::option::of((0_i128..100_000_000).prop_map(PicoUsd::new))
}

fn some_rate() -> impl Strategy<Value = Option<PicoUsd>> {
    (0_i128..100_000_000).prop_map(|picos| Some(PicoUsd::new(picos)))
}

/// Rates of a tier: any of them may be missing.
fn tier_rates() -> impl Strategy<Value = Rates> {
    (rate(), rate(), rate(), rate(), rate(), rate(), rate()).prop_map(
        |(input, cached_input, cache_write, output, reasoning, image, per_call)| Rates {
            input,
            cached_input,
            cache_write,
            output,
            reasoning,
            image,
            per_call,
            ..Rates::default()
        },
    )
}

fn model() -> impl Strategy<Value = ModelPrice> {
    let tiers = prop::collection::btree_map(1_u64..2000, tier_rates(), 0..4);
    (tier_rates(), some_rate(), some_rate(), some_rate(), tiers).prop_map(
        |(rates, input, output, image, tiers)| {
            let mut price = ModelPrice::new(
                "p",
                "m",
                Rates {
                    input,
                    output,
                    image,
                    ..rates
                },
            );
            price.tiers = tiers
                .into_iter()
                .map(|(above_prompt_tokens, rates)| Tier {
                    above_prompt_tokens,
                    rates,
                })
                .collect();
            price
        },
    )
}

/// Usage without audio, with prompts around the thresholds that [`model`] makes.
fn usage() -> impl Strategy<Value = Usage> {
    (
        0_u64..1000,
        0_u64..1000,
        0_u64..1000,
        0_u64..1000,
        0_u64..1000,
        0_u64..4,
    )
        .prop_map(
            |(input, cached_input, cache_write, output, reasoning, images)| Usage {
                input,
                cached_input,
                cache_write,
                output,
                reasoning,
                images,
                ..Usage::default()
            },
        )
}

proptest! {
    #[test]
    fn the_bound_is_never_below_the_cost(
        price in model(), usage in usage(), more in (0_u64..1500, 0_u64..50, 0_u64..3),
    ) {
        price.validate().unwrap();
        let cost = price.cost(&usage).unwrap();
        let bound = price
            .bound(usage.prompt_tokens() + more.0, usage.completion_tokens() + more.1, usage.images + more.2)
            .unwrap();
        prop_assert!(cost <= bound, "{:?} > {:?}", cost, bound);
    }

    #[test]
    fn more_usage_never_costs_less_when_longer_prompts_are_not_cheaper(
        price in model(), usage in usage(), more in usage(),
    ) {
        // Within the base rates; a tier may be cheaper on purpose.
        let price = ModelPrice { tiers: Vec::new(), ..price };
        let sum = Usage {
            input: usage.input + more.input,
            cached_input: usage.cached_input + more.cached_input,
            cache_write: usage.cache_write + more.cache_write,
            output: usage.output + more.output,
            reasoning: usage.reasoning + more.reasoning,
            images: usage.images + more.images,
            ..Usage::default()
        };
        prop_assert!(price.cost(&usage).unwrap() <= price.cost(&sum).unwrap());
    }

    #[test]
    fn a_wider_bound_is_never_lower(price in model(), prompt in 0_u64..3000, completion in 0_u64..3000, more in 0_u64..500) {
        let narrow = price.bound(prompt, completion, 0).unwrap();
        prop_assert!(narrow <= price.bound(prompt, completion + more, 0).unwrap());
        prop_assert!(narrow <= price.bound(prompt, completion, 1).unwrap());
    }

    // Fault matrix 9, 14
    #[test]
    fn the_parts_of_a_charge_add_up(base in 0_i128..1_000_000_000_000_000_000, bps in 0_u32..=100_000, flat in 0_i64..1_000_000_000) {
        let markup = EffectiveMarkup { bps, flat: Micros::new(flat), ..EffectiveMarkup::NONE };
        let charge = charge(PicoUsd::new(base), &markup).unwrap();
        let [b, m, f, margin, e] = [charge.base, charge.markup, charge.flat, charge.margin, charge.effective].map(Micros::get);
        prop_assert_eq!(b + m + f, e);
        prop_assert_eq!(m + f, margin);
        prop_assert!(b >= 0 && m >= 0 && f >= 0);
        // Rounded up, and by less than one µUSD.
        let exact = base * (10_000 + i128::from(bps));
        let marked_up = i128::from(e - f) * 10_000 * 1_000_000;
        prop_assert!(marked_up >= exact && marked_up - exact < 10_000 * 1_000_000);
    }

    #[test]
    fn any_amounts_are_charged_or_refused(base in any::<i128>(), bps in any::<u32>(), flat in any::<i64>()) {
        let markup = EffectiveMarkup { bps, flat: Micros::new(flat), ..EffectiveMarkup::NONE };
        match charge(PicoUsd::new(base), &markup) {
            Ok(charge) => prop_assert!(charge.effective >= charge.base),
            Err(error) => {
                let expected = matches!(error, PriceError::Overflow | PriceError::Invalid { .. });
                prop_assert!(expected, "{}", error);
            }
        }
    }

    #[test]
    fn a_price_list_survives_being_written_and_read(price in model()) {
        let mut catalogue = Catalogue::default();
        catalogue.insert(price.clone()).unwrap();
        let text = catalogue.to_toml().unwrap();
        prop_assert_eq!(&Catalogue::from_toml(&text).unwrap(), &catalogue);
        let json = serde_json::to_string(&price).unwrap();
        prop_assert_eq!(serde_json::from_str::<ModelPrice>(&json).unwrap(), price);
    }
}
