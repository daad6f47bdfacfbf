//! Prices of tools: fixed, metered from the arguments, or quoted by the provider for each call.
//!
//! A price is compiled once, when it is configured, so that a mistake in it is the operator's error then and
//! never the caller's later. What a caller can do wrong is [`PriceError::BadArguments`].

use serde::{Deserialize, Serialize};

use super::decimal::{per_unit, per_unit_option};
use super::expression::UnitsExpression;
use super::{PriceError, add, times};
use crate::money::PicoUsd;

/// A tool's price as it is configured. Amounts are strings of US dollars with at most twelve fractional digits:
///
/// ```toml
/// price = { kind = "fixed", usd = "0.002" }
/// price = { kind = "metered", unit_usd = "0.0005", units = "args.pages", base_usd = "0.001" }
/// price = { kind = "live", ceiling_usd = "0.5" }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EndpointPrice {
    /// Every call costs the same.
    Fixed {
        /// Price of a call.
        #[serde(with = "per_unit")]
        usd: PicoUsd,
    },
    /// A call costs its units.
    Metered {
        /// Price of a unit.
        #[serde(with = "per_unit")]
        unit_usd: PicoUsd,
        /// Common Expression Language over `args` that gives a whole number of units, for example
        /// `has(args.pages) ? args.pages : 1`, `size(args.urls)` or `math.ceil(double(args.seconds) / 60.0)`.
        units: String,
        /// Price of the call itself.
        #[serde(with = "per_unit_option", default, skip_serializing_if = "Option::is_none")]
        base_usd: Option<PicoUsd>,
    },
    /// The provider quotes each call.
    Live {
        /// The most a quote may be; what is held when there is none.
        #[serde(with = "per_unit_option", default, skip_serializing_if = "Option::is_none")]
        ceiling_usd: Option<PicoUsd>,
    },
}

/// What a call of a tool costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointCost {
    /// Known before the call.
    Exact {
        /// The exact price.
        cost: PicoUsd,
        /// How many units were counted; 1 for a fixed price.
        usage_units: u64,
    },
    /// Only the provider knows.
    Live,
}

/// A checked price that can be asked.
#[derive(Debug)]
pub struct CompiledEndpointPrice {
    price: EndpointPrice,
    units: Option<UnitsExpression>,
}

impl EndpointPrice {
    /// Checks the amounts and compiles the expression.
    ///
    /// # Errors
    /// [`PriceError::Invalid`].
    pub fn compile(self) -> Result<CompiledEndpointPrice, PriceError> {
        let (amounts, units) = match &self {
            Self::Fixed { usd } => ([Some(*usd), None], None),
            Self::Metered {
                unit_usd,
                units,
                base_usd,
            } => (
                [Some(*unit_usd), *base_usd],
                Some(UnitsExpression::compile(units)?),
            ),
            Self::Live { ceiling_usd } => ([*ceiling_usd, None], None),
        };
        if amounts.into_iter().flatten().any(|amount| amount < PicoUsd::ZERO) {
            return Err(PriceError::invalid("a price must not be negative"));
        }
        Ok(CompiledEndpointPrice { price: self, units })
    }
}

impl CompiledEndpointPrice {
    /// The price as it was configured.
    pub const fn definition(&self) -> &EndpointPrice {
        &self.price
    }

    /// Whether the provider quotes each call.
    pub const fn is_live(&self) -> bool {
        matches!(self.price, EndpointPrice::Live { .. })
    }

    /// Whether the price depends on the arguments.
    pub fn depends_on_args(&self) -> bool {
        self.units.as_ref().is_some_and(UnitsExpression::reads_args)
    }

    /// The most a live quote may be.
    pub const fn ceiling(&self) -> Option<PicoUsd> {
        match &self.price {
            EndpointPrice::Live { ceiling_usd } => *ceiling_usd,
            EndpointPrice::Fixed { .. } | EndpointPrice::Metered { .. } => None,
        }
    }

    /// What a call with `args` costs.
    ///
    /// # Errors
    /// [`PriceError::BadArguments`] when the arguments give no whole, non-negative, credible number of units;
    /// [`PriceError::Overflow`].
    pub fn price(&self, args: &serde_json::Value) -> Result<EndpointCost, PriceError> {
        match &self.units {
            Some(expression) => {
                let usage_units = expression.units(args)?;
                Ok(EndpointCost::Exact {
                    cost: self.metered(usage_units)?,
                    usage_units,
                })
            }
            None => match &self.price {
                EndpointPrice::Fixed { usd } => Ok(EndpointCost::Exact {
                    cost: *usd,
                    usage_units: 1,
                }),
                EndpointPrice::Metered { .. } | EndpointPrice::Live { .. } => Ok(EndpointCost::Live),
            },
        }
    }

    /// What to show for `args` when any JSON value is acceptable (specification 4.8): as
    /// [`CompiledEndpointPrice::price`], but one unit where the arguments are missing or unusable. `None` for
    /// live prices, which have no amount before the call.
    pub fn explain_price(&self, args: &serde_json::Value) -> Option<PicoUsd> {
        match self.price(args) {
            Ok(EndpointCost::Exact { cost, .. }) => Some(cost),
            Ok(EndpointCost::Live) => None,
            Err(_unusable) => self.metered(1).ok(),
        }
    }

    /// The price of `units` units and the call itself.
    fn metered(&self, units: u64) -> Result<PicoUsd, PriceError> {
        match &self.price {
            EndpointPrice::Metered {
                unit_usd, base_usd, ..
            } => add(base_usd.unwrap_or(PicoUsd::ZERO), times(*unit_usd, units)?),
            EndpointPrice::Fixed { usd } => Ok(*usd),
            EndpointPrice::Live { .. } => Err(PriceError::invalid("a live price has no units")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn metered(units: &str) -> CompiledEndpointPrice {
        EndpointPrice::Metered {
            unit_usd: PicoUsd::new(10),
            units: units.to_owned(),
            base_usd: Some(PicoUsd::new(3)),
        }
        .compile()
        .unwrap_or_else(|error| panic!("{units}: {error}"))
    }

    fn units(expression: &str, args: &Value) -> Result<u64, PriceError> {
        metered(expression).price(args).map(|cost| match cost {
            EndpointCost::Exact { cost, usage_units } => {
                assert_eq!(
                    Some(cost.get()),
                    i128::from(usage_units)
                        .checked_mul(10)
                        .and_then(|units| units.checked_add(3))
                );
                usage_units
            }
            EndpointCost::Live => panic!("live"),
        })
    }

    #[test]
    fn units_are_computed_from_the_arguments() {
        for (expression, args, expected) in [
            ("args.pages", json!({"pages": 3}), 3),
            ("args.pages", json!({"pages": 3.0}), 3),
            ("args.pages", json!({"pages": 0}), 0),
            ("args.pages * 2 + 1", json!({"pages": 3}), 7),
            ("size(args.urls)", json!({"urls": ["a", "b"]}), 2),
            ("size(args.text)", json!({"text": "héé"}), 3),
            ("has(args.n) ? args.n : 1", json!({}), 1),
            ("has(args.n) ? args.n : 1", json!({"n": 4}), 4),
            (
                "math.ceil(double(args.seconds) / 60.0)",
                json!({"seconds": 61}),
                2,
            ),
            (
                "math.ceil(double(args.seconds) / 60.0)",
                json!({"seconds": 60.5}),
                2,
            ),
            ("math.greatest(args.n, 10)", json!({"n": 4}), 10),
            ("math.least(args.n, 3)", json!({"n": 4}), 3),
            ("args.?n.orValue(1)", json!({}), 1),
            ("args.kind == 'large' ? 5 : 1", json!({"kind": "large"}), 5),
            (
                "size(args.items.filter(i, i.billed))",
                json!({"items": [{"billed": true}, {"billed": false}]}),
                1,
            ),
            (
                "size(args.items.filter(i, i > 1).map(i, i * 2))",
                json!({"items": [1, 2, 3]}),
                2,
            ),
            (
                "args.items.exists(i, i > 2) && args.n > 0 ? 5 : 1",
                json!({"items": [3], "n": 1}),
                5,
            ),
            ("2", json!(null), 2),
        ] {
            assert_eq!(units(expression, &args), Ok(expected), "{expression} {args}");
        }
    }

    #[test]
    fn units_that_are_negative_fractional_or_absurd_are_the_callers_mistake() {
        for (expression, args, says) in [
            ("args.n", json!({"n": -1}), "negative"),
            ("args.n", json!({"n": 1.5}), "fraction"),
            ("args.n", json!({"n": 1e300}), "more units"),
            ("args.n", json!({"n": 1_000_000_000_001_i64}), "more units"),
            ("args.n", json!({"n": u64::MAX}), "more units"),
            ("args.n", json!({"n": "3"}), "no number"),
            ("args.n", json!({"n": null}), "no number"),
            ("args.n", json!({}), "\"n\""),
            ("args.n", json!([]), "cannot be computed"),
            ("args.n", json!(null), "cannot be computed"),
            ("args.n * 2", json!({"n": i64::MAX}), "cannot be computed"),
            ("10 / args.n", json!({"n": 0}), "cannot be computed"),
            ("args.n / 0.0", json!({"n": 1.5}), "more units"),
            ("int(args.n)", json!({"n": "secret-value"}), "cannot be computed"),
        ] {
            match units(expression, &args) {
                Err(PriceError::BadArguments { message }) => {
                    assert!(message.contains(says), "{expression} {args}: {message}");
                    assert!(!message.contains("secret"), "{message}");
                }
                other => panic!("{expression} {args}: {other:?}"),
            }
        }
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(matches!(
            units("size(args)", &deep),
            Err(PriceError::BadArguments { .. })
        ));
    }

    #[test]
    fn a_mistake_in_the_expression_is_found_when_it_is_configured() {
        let long = "1 + ".repeat(200) + "1";
        for expression in [
            "",
            "args.",
            "arg.pages",
            "pages",
            "sizee(args.x)",
            "args.exists(",
            "1 +",
            &long,
            "args.a.all(x, x.all(y, y > 0)) ? 1 : 2",
            "args.a.all(x, x in args.b) ? 1 : 2",
            "args.a.all(args, true) && x ? 1 : 2",
            "Message{a: 1}.a",
        ] {
            let price = EndpointPrice::Metered {
                unit_usd: PicoUsd::new(1),
                units: expression.to_owned(),
                base_usd: None,
            };
            assert!(
                matches!(price.compile(), Err(PriceError::Invalid { .. })),
                "{expression}"
            );
        }
        let negative = EndpointPrice::Fixed {
            usd: PicoUsd::new(-1),
        };
        assert!(matches!(negative.compile(), Err(PriceError::Invalid { .. })));
    }

    // Fault matrix 181, 182, 183
    #[test]
    fn an_explanation_ignores_what_it_cannot_use() {
        let price = metered("args.pages");
        for args in [
            json!(null),
            json!([]),
            json!("x"),
            json!({}),
            json!({"pages": -1}),
            json!({"pages": "many"}),
        ] {
            assert_eq!(price.explain_price(&args), Some(PicoUsd::new(13)), "{args}");
        }
        assert_eq!(price.explain_price(&json!({"pages": 5})), Some(PicoUsd::new(53)));
        assert!(price.depends_on_args());
        assert!(!metered("2").depends_on_args());
        let live = EndpointPrice::Live {
            ceiling_usd: Some(PicoUsd::new(7)),
        }
        .compile()
        .unwrap();
        assert_eq!(
            (live.explain_price(&json!({})), live.ceiling()),
            (None, Some(PicoUsd::new(7)))
        );
        assert_eq!(live.price(&json!({})), Ok(EndpointCost::Live));
    }

    #[test]
    fn prices_are_written_in_toml_and_unknown_members_are_refused() {
        let parse = |text: &str| toml::from_str::<EndpointPrice>(text);
        assert_eq!(
            parse("kind = \"fixed\"\nusd = \"0.002\"").unwrap(),
            EndpointPrice::Fixed {
                usd: PicoUsd::new(2_000_000_000)
            }
        );
        let metered = parse("kind = \"metered\"\nunit_usd = \"0.0005\"\nunits = \"args.n\"").unwrap();
        assert_eq!(parse(&toml::to_string(&metered).unwrap()).unwrap(), metered);
        assert_eq!(
            parse("kind = \"live\"").unwrap(),
            EndpointPrice::Live { ceiling_usd: None }
        );
        for text in [
            "kind = \"fixed\"\nusd = 0.002",
            "kind = \"fixed\"\nusd = \"-1\"",
            "kind = \"fixed\"",
            "kind = \"fixed\"\nusd = \"1\"\nunits = \"1\"",
            "kind = \"free\"",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[ns]", inner, 0..3).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_arguments_are_priced_or_refused(args in any_json()) {
            for expression in ["args.n", "args.n * 2 - 1", "size(args.s)", "math.ceil(double(args.n))", "args.n.map(x, x)"] {
                let result = metered(expression).price(&args);
                prop_assert!(matches!(result, Ok(_) | Err(PriceError::BadArguments { .. })), "{:?}", result);
            }
        }
    }
}
