//! Tables of usage reports as providers send them.

use super::*;

fn read_usage(text: &str) -> Result<Option<Usage>, String> {
    normalise(serde_json::from_str::<&RawValue>(text).unwrap())
}

/// input, cached, write, output, reasoning, audio in, audio out.
fn usage(counts: [u64; 7]) -> Usage {
    let [
        input,
        cached_input,
        cache_write,
        output,
        reasoning,
        audio_input,
        audio_output,
    ] = counts;
    let (images, units) = (0, 0);
    Usage {
        input,
        cached_input,
        cache_write,
        output,
        reasoning,
        audio_input,
        audio_output,
        images,
        units,
    }
}

// Fault matrix 81
#[test]
fn each_dialect_becomes_disjoint_dimensions() {
    for (name, text, expected) in [
        (
            "OpenAI, plain",
            r#"{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}"#,
            [19, 0, 0, 10, 0, 0, 0],
        ),
        (
            "OpenAI, all details",
            r#"{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,
                "prompt_tokens_details":{"cached_tokens":1920,"audio_tokens":6},
                "completion_tokens_details":{"reasoning_tokens":100,"audio_tokens":50,
                "accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}"#,
            [80, 1920, 0, 150, 100, 6, 50],
        ),
        (
            "OpenAI, cache writes inside the prompt",
            r#"{"prompt_tokens":2600,"completion_tokens":300,"total_tokens":2900,
                "prompt_tokens_details":{"cached_tokens":2000,"cache_write_tokens":400}}"#,
            [200, 2000, 400, 300, 0, 0, 0],
        ),
        (
            "vLLM, null details",
            r#"{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5,"prompt_tokens_details":null}"#,
            [7, 0, 0, 5, 0, 0, 0],
        ),
        (
            "without a total",
            r#"{"prompt_tokens":7,"completion_tokens":5}"#,
            [7, 0, 0, 5, 0, 0, 0],
        ),
        (
            "zero completion left out",
            r#"{"prompt_tokens":7,"total_tokens":7}"#,
            [7, 0, 0, 0, 0, 0, 0],
        ),
        (
            "floats that are whole",
            r#"{"prompt_tokens":7.0,"completion_tokens":5.00}"#,
            [7, 0, 0, 5, 0, 0, 0],
        ),
        (
            "explicit zeros",
            r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#,
            [0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "DeepSeek",
            r#"{"prompt_tokens":84,"completion_tokens":20,"total_tokens":104,
                "prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":8},
                "prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":20}"#,
            [20, 64, 0, 12, 8, 0, 0],
        ),
        (
            "Moonshot, cached tokens beside",
            r#"{"prompt_tokens":300,"completion_tokens":13,"total_tokens":313,"cached_tokens":256}"#,
            [44, 256, 0, 13, 0, 0, 0],
        ),
        (
            "Mistral",
            r#"{"prompt_tokens":16,"total_tokens":50,"completion_tokens":34,"num_cached_tokens":0}"#,
            [16, 0, 0, 34, 0, 0, 0],
        ),
        (
            "LiteLLM for Anthropic: cache fields are parts of the prompt",
            r#"{"prompt_tokens":1100,"completion_tokens":50,"total_tokens":1150,
                "prompt_tokens_details":{"cached_tokens":800},
                "cache_creation_input_tokens":200,"cache_read_input_tokens":800}"#,
            [100, 800, 200, 50, 0, 0, 0],
        ),
        (
            "Anthropic's fields beside the prompt, as the total shows",
            r#"{"prompt_tokens":4,"completion_tokens":50,"total_tokens":1054,
                "cache_creation_input_tokens":200,"cache_read_input_tokens":800}"#,
            [4, 800, 200, 50, 0, 0, 0],
        ),
        (
            "Anthropic's fields, both zero",
            r#"{"prompt_tokens":4,"completion_tokens":5,
                "cache_creation_input_tokens":0,"cache_read_input_tokens":0}"#,
            [4, 0, 0, 5, 0, 0, 0],
        ),
        (
            "LiteLLM for Anthropic without a total, OpenAI's detail confirms",
            r#"{"prompt_tokens":1100,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":800},
                "cache_creation_input_tokens":200,"cache_read_input_tokens":800}"#,
            [100, 800, 200, 50, 0, 0, 0],
        ),
        (
            "xAI: reasoning beside the completion",
            r#"{"prompt_tokens":10120,"completion_tokens":1499,"total_tokens":14428,
                "prompt_tokens_details":{"text_tokens":10120,"audio_tokens":0,"image_tokens":0,"cached_tokens":128},
                "completion_tokens_details":{"reasoning_tokens":2809,"audio_tokens":0}}"#,
            [9992, 128, 0, 1499, 2809, 0, 0],
        ),
        (
            "reasoning inside the completion, as the total shows",
            r#"{"prompt_tokens":32,"completion_tokens":9,"total_tokens":41,
                "completion_tokens_details":{"reasoning_tokens":5}}"#,
            [32, 0, 0, 4, 5, 0, 0],
        ),
        (
            "a translated Gemini answer of thoughts only",
            r#"{"completion_tokens_details":{"reasoning_tokens":60},"completion_tokens":0,
                "total_tokens":81,"prompt_tokens":21}"#,
            [21, 0, 0, 0, 60, 0, 0],
        ),
        (
            "Gemini's OpenAI endpoint: thoughts in the total only",
            r#"{"prompt_tokens":20,"completion_tokens":198,"total_tokens":623}"#,
            [20, 0, 0, 198, 405, 0, 0],
        ),
    ] {
        assert_eq!(read_usage(text), Ok(Some(usage(expected))), "{name}");
    }
}

// Fault matrix 68, 81
#[test]
fn nothing_reported_is_nothing() {
    for text in [
        "null",
        "{}",
        r#"{"prompt_tokens":null,"completion_tokens":null}"#,
        r#"{"queue_time":0.1}"#,
    ] {
        assert_eq!(read_usage(text), Ok(None), "{text}");
    }
}

// Fault matrix 81
#[test]
fn what_is_impossible_or_ambiguous_is_refused() {
    for text in [
        r#""many""#,
        "[1,2,3]",
        "7",
        r#"{"prompt_tokens":-1,"completion_tokens":5}"#,
        r#"{"prompt_tokens":1e300,"completion_tokens":5}"#,
        r#"{"prompt_tokens":"12","completion_tokens":5}"#,
        r#"{"prompt_tokens":1.5,"completion_tokens":5}"#,
        r#"{"prompt_tokens":true,"completion_tokens":5}"#,
        r#"{"prompt_tokens":18446744073709551616,"completion_tokens":5}"#,
        r#"{"prompt_tokens":1000000000001,"completion_tokens":5}"#,
        r#"{"completion_tokens":5}"#,
        r#"{"prompt_tokens":5}"#,
        r#"{"total_tokens":5}"#,
        r#"{"prompt_tokens":5,"prompt_tokens":6,"completion_tokens":5}"#,
        // cached > prompt
        r#"{"prompt_tokens":5,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":6}}"#,
        r#"{"prompt_tokens":5,"completion_tokens":5,"prompt_tokens_details":{"audio_tokens":6}}"#,
        r#"{"prompt_tokens":5,"completion_tokens":5,"prompt_tokens_details":"none"}"#,
        // reasoning > completion, and no total that explains it
        r#"{"prompt_tokens":5,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":6}}"#,
        // Perplexity's deep research: reasoning in no total at all
        r#"{"prompt_tokens":33,"completion_tokens":7163,"total_tokens":7196,"reasoning_tokens":73997}"#,
        r#"{"prompt_tokens":5,"completion_tokens":5,"total_tokens":9}"#,
        r#"{"prompt_tokens":5,"completion_tokens":5,"total_tokens":11,
            "completion_tokens_details":{"reasoning_tokens":0}}"#,
        // DeepSeek with hits and misses that do not add up
        r#"{"prompt_tokens":84,"completion_tokens":1,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":21}"#,
        // two names, two values
        r#"{"prompt_tokens":84,"completion_tokens":1,"prompt_cache_hit_tokens":64,
            "prompt_tokens_details":{"cached_tokens":63}}"#,
        // Anthropic's fields with nothing that tells whether they are parts of the prompt
        r#"{"prompt_tokens":1100,"completion_tokens":50,"cache_read_input_tokens":800}"#,
        // cache and reasoning of one size: the total fits two readings
        r#"{"prompt_tokens":50,"completion_tokens":50,"total_tokens":110,"cache_read_input_tokens":10,
            "completion_tokens_details":{"reasoning_tokens":10}}"#,
    ] {
        assert!(read_usage(text).is_err(), "{text}: {:?}", read_usage(text));
    }
}
