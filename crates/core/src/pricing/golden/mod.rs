//! Golden vectors: prices computed by hand, each with the mistake that it catches. The mistakes are real ones,
//! from the trackers of programs that price the same usage.

mod charges;

use crate::money::PicoUsd;
use crate::usage::Usage;

use super::{Catalogue, Dimension, ModelPrice, PriceError, Rates};

/// A price from the written form of its rates.
fn model(rates: &str) -> ModelPrice {
    let text = format!("[[models]]\nprovider = \"p\"\nmodel = \"m\"\n{rates}");
    Catalogue::from_toml(&text).unwrap().find("p/m").unwrap().clone()
}

fn cost_usd(price: &ModelPrice, usage: &Usage) -> String {
    super::format_usd(price.cost(usage).unwrap())
}

struct Vector {
    catches: &'static str,
    rates: &'static str,
    usage: Usage,
    usd: &'static str,
}

const NONE: Usage = Usage {
    input: 0,
    cached_input: 0,
    cache_write: 0,
    output: 0,
    reasoning: 0,
    audio_input: 0,
    audio_output: 0,
    images: 0,
    units: 0,
};

const TIERED: &str = "rates = { input = \"1.25\", cached_input = \"0.125\", output = \"10\" }\n\
    tiers = [{ above_prompt_tokens = 200000, rates = { input = \"2.5\", cached_input = \"0.25\", output = \"15\" } }]";

const VECTORS: &[Vector] = &[
    Vector {
        // BerriAI/litellm#14849: 262960 prompt tokens, 257955 of them cached, were billed as 262960 full ones plus
        // 257955 cached ones (0.7642 instead of 0.1849).
        // 5005 × 1.25e-6 + 257955 × 0.625e-6 + 1744 × 10e-6 = 0.00625625 + 0.161221875 + 0.01744
        catches: "cached tokens charged twice",
        rates: "rates = { input = \"1.25\", cached_input = \"0.625\", output = \"10\" }",
        usage: Usage {
            input: 5005,
            cached_input: 257_955,
            output: 1744,
            ..NONE
        },
        usd: "0.184918125",
    },
    Vector {
        // BerriAI/litellm#31714: 27147 prompt tokens, 27146 cached, all billed at the input rate.
        // 1 × 1.4e-6 + 27146 × 0.26e-6 + 351 × 4.4e-6 = 0.0000014 + 0.00705796 + 0.0015444
        catches: "cached tokens charged at the full rate",
        rates: "rates = { input = \"1.4\", cached_input = \"0.26\", output = \"4.4\" }",
        usage: Usage {
            input: 1,
            cached_input: 27_146,
            output: 351,
            ..NONE
        },
        usd: "0.00860376",
    },
    Vector {
        // browser-use/browser-use#5305: 2000 prompt tokens, 500 read and 300 written: the written ones stayed in the
        // plain ones too. 1200 × 3e-6 + 500 × 0.3e-6 + 300 × 3.75e-6 = 0.0036 + 0.00015 + 0.001125
        catches: "cache writes charged twice",
        rates: "rates = { input = \"3\", cached_input = \"0.3\", cache_write = \"3.75\", output = \"15\" }",
        usage: Usage {
            input: 1200,
            cached_input: 500,
            cache_write: 300,
            ..NONE
        },
        usd: "0.004875",
    },
    Vector {
        // assafelovic/gpt-researcher#1986 and Piebald-AI/splitrail-cloud#33: cache tokens without a rate were free.
        // Without their own rates they cost as much as input: 600 × 2e-6.
        catches: "cache read and write without a rate taken as free",
        rates: "rates = { input = \"2\", output = \"8\" }",
        usage: Usage {
            input: 100,
            cached_input: 200,
            cache_write: 300,
            ..NONE
        },
        usd: "0.0012",
    },
    Vector {
        // anomalyco/opencode#17566: 1944 completion tokens, 1360 of them reasoning, were billed as 3304.
        // 14746 × 30e-6 + (584 + 1360) × 180e-6 = 0.44238 + 0.34992
        catches: "reasoning tokens charged twice",
        rates: "rates = { input = \"30\", output = \"180\" }",
        usage: Usage {
            input: 14_746,
            output: 584,
            reasoning: 1360,
            ..NONE
        },
        usd: "0.7923",
    },
    Vector {
        // agentjido/req_llm#198 and langfuse/langfuse#16508: reasoning tokens without a rate were free.
        // 1000 × 3e-6 + 500 × 15e-6 + 5000 × 15e-6 = 0.003 + 0.0075 + 0.075
        catches: "reasoning without a rate taken as free",
        rates: "rates = { input = \"3\", output = \"15\" }",
        usage: Usage {
            input: 1000,
            output: 500,
            reasoning: 5000,
            ..NONE
        },
        usd: "0.0855",
    },
    Vector {
        // comet-ml/opik#7777: a model whose reasoning is cheaper (3 against 8) billed it at the output rate.
        // 100 × 2e-6 + 100 × 8e-6 + 1000 × 3e-6 = 0.0002 + 0.0008 + 0.003
        catches: "own rate of reasoning ignored",
        rates: "rates = { input = \"2\", output = \"8\", reasoning = \"3\" }",
        usage: Usage {
            input: 100,
            output: 100,
            reasoning: 1000,
            ..NONE
        },
        usd: "0.004",
    },
    Vector {
        // BerriAI/litellm#37294, langfuse/langfuse#1030: a price of 0 was treated as missing. Here a truthiness check
        // would fall back to input and charge 0.001.
        catches: "explicit zero treated as missing",
        rates: "rates = { input = \"1\", cached_input = \"0\", output = \"1\" }",
        usage: Usage {
            cached_input: 1000,
            ..NONE
        },
        usd: "0",
    },
    Vector {
        // Exactly at the threshold the base rates hold (robinebers/openusage#885: "keep exactly 200k at the normal rate").
        // 200000 × 1.25e-6 + 100 × 10e-6 = 0.25 + 0.001
        catches: "tier applied at its threshold",
        rates: TIERED,
        usage: Usage {
            input: 200_000,
            output: 100,
            ..NONE
        },
        usd: "0.251",
    },
    Vector {
        // junhoyeo/tokscale#862, metadist/synaplan#1319: the tier holds for the whole request, output included.
        // 200001 × 2.5e-6 + 100 × 15e-6 = 0.5000025 + 0.0015; charging only the excess token would give 0.2510025.
        catches: "tier applied to the excess only",
        rates: TIERED,
        usage: Usage {
            input: 200_001,
            output: 100,
            ..NONE
        },
        usd: "0.5015025",
    },
    Vector {
        // The same thread: cached tokens are part of the prompt that picks the tier.
        // 1000 × 2.5e-6 + 250000 × 0.25e-6 + 10 × 15e-6 = 0.0025 + 0.0625 + 0.00015
        catches: "cached tokens left out of the tier's prompt",
        rates: TIERED,
        usage: Usage {
            input: 1000,
            cached_input: 250_000,
            output: 10,
            ..NONE
        },
        usd: "0.06515",
    },
    Vector {
        // activepieces/activepieces#8233: only the prompt picks the tier. 10 × 1.25e-6 + 300000 × 10e-6
        catches: "completion tokens counted towards the tier",
        rates: TIERED,
        usage: Usage {
            input: 10,
            output: 300_000,
            ..NONE
        },
        usd: "3.0000125",
    },
    Vector {
        // What the upper tier leaves out comes from the tier below, then from the base.
        // 300001 × 3e-6 + 1 × 5e-6 (output of the first tier) + 1 × 0.1e-6 (cached input of the base)
        catches: "upper tier loses the rates of the tier below",
        rates: "rates = { input = \"1\", cached_input = \"0.1\", output = \"4\" }\n\
            tiers = [{ above_prompt_tokens = 100000, rates = { input = \"2\", output = \"5\" } },\n\
                     { above_prompt_tokens = 300000, rates = { input = \"3\" } }]",
        usage: Usage {
            input: 300_001,
            cached_input: 1,
            output: 1,
            ..NONE
        },
        usd: "0.9000081",
    },
    Vector {
        // A price per request on top of tokens: 0.005 + 1000 × 1e-6 + 500 × 2e-6
        catches: "price per call forgotten",
        rates: "rates = { input = \"1\", output = \"2\", per_call = \"0.005\" }",
        usage: Usage {
            input: 1000,
            output: 500,
            ..NONE
        },
        usd: "0.007",
    },
    Vector {
        // 2 × 0.0013 + 10 × 100e-6 + 5 × 200e-6 + 1 × 1e-6
        catches: "audio or images charged at text rates",
        rates: "rates = { input = \"1\", output = \"2\", audio_input = \"100\", audio_output = \"200\", image = \"0.0013\" }",
        usage: Usage {
            input: 1,
            audio_input: 10,
            audio_output: 5,
            images: 2,
            ..NONE
        },
        usd: "0.004601",
    },
    Vector {
        // The price itself is not rounded: 1 × 14e-9 and so on, exactly.
        catches: "rounding before the charge",
        rates: "rates = { input = \"0.14\", cached_input = \"0.014\", output = \"0.28\" }",
        usage: Usage {
            input: 1,
            cached_input: 1,
            output: 1,
            ..NONE
        },
        usd: "0.000000434",
    },
    Vector {
        catches: "a free call that is refused",
        rates: "rates = { input = \"0\", output = \"0\" }",
        usage: Usage {
            input: 1_000_000,
            output: 1_000_000,
            reasoning: 5,
            cache_write: 7,
            ..NONE
        },
        usd: "0",
    },
    Vector {
        catches: "an empty call that costs something",
        rates: "rates = { input = \"5\", output = \"5\" }",
        usage: NONE,
        usd: "0",
    },
];

#[test]
fn every_vector_has_its_price() {
    for vector in VECTORS {
        assert_eq!(
            cost_usd(&model(vector.rates), &vector.usage),
            vector.usd,
            "{}",
            vector.catches
        );
    }
}

#[test]
fn what_is_counted_without_a_price_is_refused() {
    // BerriAI/litellm#37294 the other way round, ding113/claude-code-hub#1167: missing prices silently recorded as 0.
    let price = model("rates = { input = \"1\", output = \"2\" }");
    let mut unpriced = price.clone();
    unpriced.rates = Rates::default();
    for (price, usage, dimension) in [
        (
            &price,
            Usage {
                audio_input: 1,
                ..NONE
            },
            Dimension::AudioInput,
        ),
        (
            &price,
            Usage {
                audio_output: 1,
                ..NONE
            },
            Dimension::AudioOutput,
        ),
        (&price, Usage { images: 1, ..NONE }, Dimension::Image),
        (&price, Usage { units: 1, ..NONE }, Dimension::Units),
        (&unpriced, Usage { input: 1, ..NONE }, Dimension::Input),
        (
            &unpriced,
            Usage {
                cached_input: 1,
                ..NONE
            },
            Dimension::CachedInput,
        ),
        (&unpriced, Usage { reasoning: 1, ..NONE }, Dimension::Reasoning),
    ] {
        assert_eq!(price.cost(&usage), Err(PriceError::Unpriced { dimension }));
    }
    assert_eq!(unpriced.cost(&NONE), Ok(PicoUsd::ZERO));
    assert_eq!(
        unpriced.bound(1, 1, 0),
        Err(PriceError::Unpriced {
            dimension: Dimension::CachedInput
        })
    );
    assert_eq!(
        price.bound(1, 1, 1),
        Err(PriceError::Unpriced {
            dimension: Dimension::Image
        })
    );
}

#[test]
fn a_price_that_does_not_fit_is_refused_and_not_wrapped() {
    let mut price = model("rates = { input = \"1\", output = \"2\" }");
    price.rates.input = Some(PicoUsd::new(i128::MAX / 2));
    assert_eq!(price.cost(&Usage { input: 3, ..NONE }), Err(PriceError::Overflow));
    assert_eq!(price.bound(3, 0, 0), Err(PriceError::Overflow));
}

#[test]
fn the_bound_of_a_call_is_its_dearest_form() {
    let price = model(TIERED);
    let usd = |prompt, completion| super::format_usd(price.bound(prompt, completion, 0).unwrap());
    // Up to the threshold only the base rates can apply: 200000 × 1.25e-6 + 1 × 10e-6.
    assert_eq!(usd(200_000, 1), "0.25001");
    assert_eq!(usd(200_001, 1), "0.5000175");
    // A cheaper tier above: the longest prompt below it may be dearer than the longest of all.
    let cheaper = model(
        "rates = { input = \"10\", output = \"10\" }\n\
         tiers = [{ above_prompt_tokens = 1000, rates = { input = \"1\", output = \"1\" } }]",
    );
    assert_eq!(super::format_usd(cheaper.bound(1001, 0, 0).unwrap()), "0.01");
    // A cache write that is dearer than input has to be held for: 100 × 3.75e-6 + 10 × 20e-6.
    let writes =
        model("rates = { input = \"3\", cache_write = \"3.75\", output = \"15\", reasoning = \"20\" }");
    assert_eq!(super::format_usd(writes.bound(100, 10, 0).unwrap()), "0.000575");
    // Images: by the piece, and as tokens inside the input bound.
    let pictures =
        model("max_image_tokens = 1500\nrates = { input = \"1\", output = \"1\", image = \"0.01\" }");
    assert_eq!(pictures.input_bound(100, 2), Ok(100 + 64 + 3000));
    assert_eq!(super::format_usd(pictures.bound(0, 0, 2).unwrap()), "0.02");
    assert_eq!(price.input_bound(u64::MAX, 0), Err(PriceError::Overflow));
    assert_eq!(
        price.input_bound(0, 1),
        Err(PriceError::Unpriced {
            dimension: Dimension::Image
        })
    );
}
