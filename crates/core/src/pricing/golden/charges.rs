//! Hand-computed charges and markup levels.

use crate::money::{Micros, PicoUsd};
use crate::pricing::{EffectiveMarkup, Markup, MarkupLevels, MarkupSource, PriceError, charge};

/// base in pUSD, bps, flat in µUSD → base, markup, flat, margin, effective in µUSD, and what it catches.
type ChargeVector = (i128, u32, i64, [i64; 5], &'static str);

const CHARGES: &[ChargeVector] = &[
    // Fault matrix 9: 1.5 × 1.3333 = 1.99995 → 2, and 1 flat. Rounding the base first would give 2 × 1.3333 → 3.
    (1_500_000, 3333, 1, [2, 0, 1, 1, 3], "rounding twice"),
    (0, 3333, 0, [0, 0, 0, 0, 0], "a free call that costs something"),
    (0, 0, 5, [0, 0, 5, 5, 5], "a flat markup lost on a free call"),
    (1, 0, 0, [1, 0, 0, 0, 1], "a tiny price rounded down to nothing"),
    // 434000 pUSD is 0.434 µUSD. Rounding each of the three dimensions up would give 3.
    (434_000, 0, 0, [1, 0, 0, 0, 1], "rounding each dimension"),
    (1_000_000, 0, 0, [1, 0, 0, 0, 1], "a whole amount rounded up"),
    (1_000_001, 0, 0, [2, 0, 0, 0, 2], "truncation"),
    // 2000 × 1.3333 = 2666.6 → 2667.
    (
        2_000_000_000,
        3333,
        1,
        [2000, 667, 1, 668, 2668],
        "markup rounded down",
    ),
    // 1000 % on 3 µUSD.
    (
        3_000_000,
        100_000,
        0,
        [3, 30, 0, 30, 33],
        "basis points taken as percent",
    ),
    (
        10_000_000_000,
        1,
        0,
        [10_000, 1, 0, 1, 10_001],
        "a small percentage lost",
    ),
];

#[test]
fn every_charge_has_its_parts() {
    for (base, bps, flat, expected, catches) in CHARGES {
        let markup = EffectiveMarkup {
            bps: *bps,
            flat: Micros::new(*flat),
            ..EffectiveMarkup::NONE
        };
        let charge = charge(PicoUsd::new(*base), &markup).unwrap();
        let parts = [
            charge.base,
            charge.markup,
            charge.flat,
            charge.margin,
            charge.effective,
        ]
        .map(Micros::get);
        assert_eq!(&parts, expected, "{catches}");
    }
}

#[test]
fn a_charge_that_does_not_fit_is_refused_and_not_wrapped() {
    let most = PicoUsd::from_micros(Micros::MAX);
    assert_eq!(
        charge(most, &EffectiveMarkup::NONE).unwrap().effective,
        Micros::MAX
    );
    let over = most.checked_add(PicoUsd::new(1)).unwrap();
    assert_eq!(charge(over, &EffectiveMarkup::NONE), Err(PriceError::Overflow));
    let one_bps = EffectiveMarkup {
        bps: 1,
        ..EffectiveMarkup::NONE
    };
    assert_eq!(charge(most, &one_bps), Err(PriceError::Overflow));
    let flat = EffectiveMarkup {
        flat: Micros::new(1),
        ..EffectiveMarkup::NONE
    };
    assert_eq!(charge(most, &flat), Err(PriceError::Overflow));
    assert!(charge(PicoUsd::new(-1), &EffectiveMarkup::NONE).is_err());
}

#[test]
fn the_most_specific_level_wins_for_each_part_apart() {
    let bps = |bps| Markup {
        markup_bps: Some(bps),
        flat: None,
    };
    let flat = |flat| Markup {
        markup_bps: None,
        flat: Some(Micros::new(flat)),
    };
    let none = MarkupLevels::default().resolve();
    assert_eq!(none, EffectiveMarkup::NONE);
    let levels = MarkupLevels {
        key: flat(7),
        endpoint: bps(5),
        provider: bps(6),
        global: bps(1),
    }
    .resolve();
    assert_eq!((levels.bps, levels.markup_source), (5, MarkupSource::Endpoint));
    assert_eq!(
        (levels.flat.get(), levels.flat_source, levels.overridden),
        (7, MarkupSource::Key, true)
    );
    let general = MarkupLevels {
        global: bps(9),
        ..MarkupLevels::default()
    }
    .resolve();
    assert_eq!(
        (general.bps, general.markup_source, general.overridden),
        (9, MarkupSource::Global, false)
    );
    // A zero that somebody wrote is a decision, not a gap.
    let zero = MarkupLevels {
        provider: bps(0),
        global: bps(9),
        ..MarkupLevels::default()
    }
    .resolve();
    assert_eq!(
        (zero.bps, zero.markup_source, zero.overridden),
        (0, MarkupSource::Provider, true)
    );
    assert_eq!(
        serde_json::to_string(&MarkupSource::Provider).unwrap(),
        "\"provider\""
    );
}

// Fault matrix 13
#[test]
fn markup_outside_its_range_is_refused() {
    for json in [
        r#"{"markupBps": -1}"#,
        r#"{"markupBps": 100001}"#,
        r#"{"markupBps": 1000000000}"#,
        r#"{"markupBps": 1.5}"#,
        r#"{"markupBps": "100"}"#,
        r#"{"flatMarkupUsdc": "-0.1"}"#,
        r#"{"flatMarkupUsdc": 0.1}"#,
        r#"{"markup": 1}"#,
    ] {
        assert!(serde_json::from_str::<Markup>(json).is_err(), "{json}");
    }
    let markup: Markup = serde_json::from_str(r#"{"markupBps": 100000, "flatMarkupUsdc": "0.01"}"#).unwrap();
    assert_eq!(
        markup,
        Markup {
            markup_bps: Some(100_000),
            flat: Some(Micros::new(10_000))
        }
    );
}
