//! Hand-made excerpts in the shape of the real file.

use crate::usage::Usage;

use super::*;

fn import(text: &str) -> Import {
    import_litellm(text).unwrap()
}

fn chat(members: &str) -> Import {
    import(&format!(
        r#"{{"acme/m": {{"litellm_provider": "acme", "mode": "chat", {members}}}}}"#
    ))
}

fn messages(import: &Import) -> Vec<&str> {
    import
        .warnings
        .iter()
        .map(|warning| warning.message.as_str())
        .collect()
}

#[test]
fn every_known_price_lands_in_its_dimension() {
    let import = chat(
        r#""input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05,
           "cache_read_input_token_cost": 1.25e-07, "cache_creation_input_token_cost": 1.5625e-06,
           "output_cost_per_reasoning_token": 3e-6, "input_cost_per_audio_token": 0.000001,
           "output_cost_per_audio_token": 2e-06, "input_cost_per_image": 0.0013, "input_cost_per_request": 0.005,
           "input_cost_per_token_above_200k_tokens": 2.5e-06, "output_cost_per_token_above_200k_tokens": 1.5e-05,
           "cache_read_input_token_cost_above_200k_tokens": 2.5e-07,
           "cache_creation_input_token_cost_above_200k_tokens": 3e-06,
           "output_cost_per_reasoning_token_above_200k_tokens": 4e-06,
           "max_input_tokens": 1048576, "max_output_tokens": 65536.0, "supports_reasoning": true"#,
    );
    assert_eq!(messages(&import), [""; 0]);
    let price = import.catalogue.find("acme/m").unwrap();
    let micros = |picos: i128| Some(PicoUsd::new(picos));
    let expected = Rates {
        input: micros(1_250_000),
        cached_input: micros(125_000),
        cache_write: micros(1_562_500),
        output: micros(10_000_000),
        reasoning: micros(3_000_000),
        audio_input: micros(1_000_000),
        audio_output: micros(2_000_000),
        image: micros(1_300_000_000),
        per_call: micros(5_000_000_000),
    };
    assert_eq!(price.rates, expected);
    assert_eq!(price.tiers.len(), 1);
    assert_eq!(price.tiers[0].above_prompt_tokens, 200_000);
    assert_eq!(price.tiers[0].rates.cached_input, micros(250_000));
    assert_eq!(
        (price.context_length, price.max_output_tokens),
        (Some(1_048_576), Some(65_536))
    );
    assert!(price.reasoning);
}

#[test]
fn float_residue_is_rounded_to_the_price_that_was_meant_and_reported() {
    let import = chat(
        r#""input_cost_per_token": 2.0000000000000002e-07, "output_cost_per_token": 8.900000000000001e-07"#,
    );
    let usage = Usage {
        input: 1_000_000,
        output: 1_000_000,
        ..Usage::default()
    };
    // $0.20 and $0.89 per million: with the residue kept the charge would round up to 1.090001.
    let cost = import.catalogue.find("m").unwrap().cost(&usage).unwrap();
    assert_eq!(cost.ceil_micros().unwrap().to_string(), "1.09");
    assert_eq!(
        messages(&import),
        [
            "input_cost_per_token 2.0000000000000002e-07 is rounded to 0.0000002",
            "output_cost_per_token 8.900000000000001e-07 is rounded to 0.00000089",
        ]
    );
}

#[test]
fn a_price_below_the_smallest_unit_does_not_become_free() {
    let import = chat(r#""input_cost_per_token": 1e-13, "output_cost_per_token": 0"#);
    assert_eq!(
        import.catalogue.find("m").unwrap().rates.input,
        Some(PicoUsd::new(1))
    );
    assert_eq!(
        messages(&import),
        [
            "input_cost_per_token 1e-13 is rounded to 0.000000000001",
            "the price of output is 0: it is free"
        ]
    );
}

#[test]
fn unknown_kinds_of_price_are_reported() {
    let import = chat(
        r#""input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "input_cost_per_token_priority": 2e-06,
           "output_cost_per_token_flex": 1e-06, "search_context_cost_per_query": {"search_context_size_low": 0.01},
           "off_peak_pricing": {"windows": []}, "cache_creation_input_token_cost_above_1hr": 2e-06,
           "supports_vision": true"#,
    );
    assert_eq!(
        messages(&import),
        [
            "kinds of price that are not imported: input_cost_per_token_priority, output_cost_per_token_flex, \
             search_context_cost_per_query, off_peak_pricing, cache_creation_input_token_cost_above_1hr",
            "takes images, but the file has no bound for their tokens: set max_image_tokens to allow them",
        ]
    );
    assert_eq!(import.ignored_kinds.len(), 5);
    let price = import.catalogue.find("m").unwrap();
    assert_eq!(price.warnings.len(), 2);
    assert!(!price.accepts_images());
}

#[test]
fn a_model_whose_price_cannot_be_right_is_refused() {
    for (members, says) in [
        (
            r#""input_cost_per_token": -1e-06, "output_cost_per_token": 1e-06"#,
            "is negative: -1e-06",
        ),
        (
            r#""input_cost_per_token": "1e-06", "output_cost_per_token": 1e-06"#,
            "is no number",
        ),
        (
            r#""input_cost_per_token": [1], "output_cost_per_token": 1e-06"#,
            "is no number",
        ),
        (
            r#""input_cost_per_token": 1e99, "output_cost_per_token": 1e-06"#,
            "is too large",
        ),
        (r#""output_cost_per_token": 1e-06"#, "no price for input"),
        (
            r#""input_cost_per_token": null, "output_cost_per_token": 1e-06"#,
            "no price for input",
        ),
        (
            r#""tiered_pricing": []"#,
            "no price for input (has tiered_pricing)",
        ),
        (
            r#""input_cost_per_token": 1e-06, "input_cost_per_token": 2e-06, "output_cost_per_token": 0"#,
            "twice",
        ),
        (
            r#""input_cost_per_token": 1e-06, "output_cost_per_token": 0, "cache_read_input_token_cost": 1e-07,
               "input_cost_per_token_cache_hit": 2e-07"#,
            "contradicts",
        ),
    ] {
        let import = chat(members);
        assert!(import.catalogue.is_empty(), "{members}");
        assert_eq!(import.refused, 1, "{members}");
        let message = messages(&import).join("\n");
        assert!(
            message.starts_with("refused: ") && message.contains(says),
            "{members}: {message}"
        );
    }
}

#[test]
fn other_modes_and_the_sample_are_left_out_and_counted() {
    let import = import(
        r#"{"sample_spec": {"mode": "one of: chat", "max_tokens": "text"},
            "e": {"mode": "embedding", "litellm_provider": "acme", "input_cost_per_token": 1e-8},
            "i": {"mode": "image_generation", "litellm_provider": "acme"},
            "j": {"mode": "image_generation", "litellm_provider": "acme"},
            "none": {"litellm_provider": "acme"},
            "c": {"mode": "completion", "litellm_provider": "acme", "input_cost_per_token": 0.0, "output_cost_per_token": 1}}"#,
    );
    let skipped: Vec<_> = import
        .skipped
        .iter()
        .map(|(mode, count)| (mode.as_str(), *count))
        .collect();
    assert_eq!(skipped, [("embedding", 1), ("image_generation", 2), ("none", 1)]);
    assert_eq!(import.catalogue.len(), 1);
}

#[test]
fn a_model_that_stands_twice_keeps_the_entry_with_the_provider_in_front() {
    let entry = |price: &str| {
        format!(
            r#"{{"mode": "chat", "litellm_provider": "acme", "input_cost_per_token": {price}, "output_cost_per_token": 1e-6}}"#
        )
    };
    for (first, second) in [("acme/m", "m"), ("m", "acme/m")] {
        let price = |name: &str| entry(if name == "m" { "3e-6" } else { "2e-6" });
        let import = import(&format!(
            r#"{{"{first}": {}, "{second}": {}}}"#,
            price(first),
            price(second)
        ));
        assert_eq!(import.catalogue.len(), 1);
        assert_eq!(
            import.catalogue.find("acme/m").unwrap().rates.input,
            Some(PicoUsd::new(2_000_000))
        );
        assert!(
            messages(&import)[0].contains("different prices"),
            "{:?}",
            import.warnings
        );
    }
}

#[test]
fn a_tier_that_leaves_a_related_price_behind_is_pointed_out() {
    let import = chat(
        r#""input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "cache_creation_input_token_cost": 0,
           "cache_read_input_token_cost": 1e-07, "input_cost_per_token_above_128k_tokens": 2e-06"#,
    );
    assert_eq!(
        messages(&import),
        [
            "the price of cache_write is 0 although input is not free",
            "above 128000 prompt tokens input changes but cached_input keeps its base price",
            "above 128000 prompt tokens input changes but cache_write keeps its base price",
        ]
    );
}

#[test]
fn text_that_is_no_price_file_is_an_error() {
    for text in ["", "[]", "null", "{\"a\": ", "{\"a\": 1} x"] {
        assert!(import_litellm(text).is_err(), "{text}");
    }
    assert_eq!(import("{\"a\": 1}").refused, 1);
}
