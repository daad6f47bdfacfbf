//! What a top-up costs, what it credits, and what a refund of it takes back.
//!
//! The ledger counts µUSD, a card processor whole cents; the two meet here and nowhere else. Exactly the
//! amount asked for is credited, the total is rounded up to a cent, and the fee is the difference of the
//! two, so that the parts of a quote always add up. What is given (bonus, refund) rounds down.
//!
//! The gross-up covers the processor's fee however the processor rounds it. Ours counts that fee rounded
//! **up** to a cent, which is never less than rounding half up: for an amount in whole cents this is the
//! same total as with the exact fee, for a finer amount at most two cents more.

use serde::{Deserialize, Serialize};

use crate::ledger::account::coded_enum;
use crate::money::Micros;

/// Largest proportional fee: 50 %.
pub const MAX_FEE_RATE_BPS: u32 = 5_000;
/// Largest bonus: ten times the amount.
pub const MAX_BONUS_BPS: u32 = 100_000;

/// One in basis points.
const ONE_IN_BPS: i128 = 10_000;
/// µUSD in one cent.
const MICROS_PER_CENT: i128 = 10_000;

coded_enum! {
    /// Who bears the processor's fee.
    FeeMode {
        /// The buyer: total = credits + fee.
        PassThrough = 0 "pass_through",
        /// The operator: the buyer pays the credits, rounded up to a cent.
        Absorbed = 1 "absorbed",
    }
}

/// What the processor takes of a payment, and who bears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FeeSchedule {
    /// Who bears the fee.
    pub mode: FeeMode,
    /// Proportional part in basis points of the total, 0..=5000.
    pub rate_bps: u32,
    /// Fixed part per payment, not negative.
    #[serde(rename = "fixedUsd")]
    pub fixed: Micros,
}

/// A volume bonus and the amount from which it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BonusTier {
    /// Smallest amount that reaches the tier.
    #[serde(rename = "minUsd")]
    pub min: Micros,
    /// Bonus in basis points of the amount, 1..=100000.
    pub bonus_bps: u32,
}

/// Everything a quote depends on beside the amount. Read from JSON it is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "RawQuoteRules")]
pub struct QuoteRules {
    /// The processor's fee.
    pub fees: FeeSchedule,
    /// Smallest amount that can be bought.
    #[serde(rename = "minUsd")]
    pub min: Micros,
    /// Largest amount that can be bought.
    #[serde(rename = "maxUsd")]
    pub max: Micros,
    /// Volume bonuses, by rising amount.
    pub tiers: Vec<BonusTier>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawQuoteRules {
    fees: FeeSchedule,
    #[serde(rename = "minUsd")]
    min: Micros,
    #[serde(rename = "maxUsd")]
    max: Micros,
    #[serde(default)]
    tiers: Vec<BonusTier>,
}

impl TryFrom<RawQuoteRules> for QuoteRules {
    type Error = RulesError;

    fn try_from(raw: RawQuoteRules) -> Result<Self, Self::Error> {
        let rules = Self {
            fees: raw.fees,
            min: raw.min,
            max: raw.max,
            tiers: raw.tiers,
        };
        rules.validate()?;
        Ok(rules)
    }
}

/// Why rules for quotes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// The proportional fee is above [`MAX_FEE_RATE_BPS`].
    #[error("rateBps must be 0..={MAX_FEE_RATE_BPS}")]
    FeeRate,
    /// The fixed fee is negative.
    #[error("fixedUsd must not be negative")]
    FixedFee,
    /// The smallest amount is zero or negative.
    #[error("minUsd must be above zero")]
    Minimum,
    /// No amount lies between the smallest and the largest.
    #[error("maxUsd must not be below minUsd")]
    Maximum,
    /// A tier begins at zero or below.
    #[error("minUsd of a bonus tier must be above zero")]
    TierMinimum,
    /// A tier's bonus is zero or above [`MAX_BONUS_BPS`].
    #[error("bonusBps must be 1..={MAX_BONUS_BPS}")]
    TierBonus,
    /// A tier does not begin above the one before it.
    #[error("bonus tiers must be ordered by rising minUsd")]
    TierOrder,
}

impl FeeSchedule {
    /// Refuses a rate above [`MAX_FEE_RATE_BPS`] and a negative fixed part.
    ///
    /// # Errors
    /// [`RulesError::FeeRate`], [`RulesError::FixedFee`].
    pub fn validate(&self) -> Result<(), RulesError> {
        if self.rate_bps > MAX_FEE_RATE_BPS {
            return Err(RulesError::FeeRate);
        }
        if self.fixed.is_negative() {
            return Err(RulesError::FixedFee);
        }
        Ok(())
    }
}

impl QuoteRules {
    /// Refuses rules that leave nothing to buy or whose tiers are not strictly rising.
    ///
    /// # Errors
    /// The first [`RulesError`] found.
    pub fn validate(&self) -> Result<(), RulesError> {
        self.fees.validate()?;
        if self.min <= Micros::ZERO {
            return Err(RulesError::Minimum);
        }
        if self.max < self.min {
            return Err(RulesError::Maximum);
        }
        let mut below = None;
        for tier in &self.tiers {
            if tier.min <= Micros::ZERO {
                return Err(RulesError::TierMinimum);
            }
            if !(1..=MAX_BONUS_BPS).contains(&tier.bonus_bps) {
                return Err(RulesError::TierBonus);
            }
            if below.is_some_and(|below| tier.min <= below) {
                return Err(RulesError::TierOrder);
            }
            below = Some(tier.min);
        }
        Ok(())
    }

    fn tier_reached(&self, amount: Micros) -> Option<BonusTier> {
        let reached = self.tiers.iter().filter(|tier| tier.min <= amount);
        reached.max_by_key(|tier| tier.min).copied()
    }

    /// The next tier that can be bought: one above the maximum is not worth mentioning.
    fn tier_above(&self, amount: Micros) -> Option<BonusTier> {
        let above = self
            .tiers
            .iter()
            .filter(|tier| tier.min > amount && tier.min <= self.max);
        above.min_by_key(|tier| tier.min).copied()
    }
}

/// Credits on top of those that are paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bonus {
    /// What is given, above zero.
    pub amount: Micros,
    /// The rate it was computed with, in basis points.
    pub bps: u32,
}

/// The price of a top-up. `credits_usd + fee = total`, and `total` is whole cents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// Who bears the processor's fee.
    pub fee_mode: FeeMode,
    /// What the ledger credits, exactly as asked.
    pub credits_usd: Micros,
    /// What is paid beside it.
    pub fee: Micros,
    /// What the card is charged.
    pub total: Micros,
    /// The volume bonus, when a tier is reached and gives at least 1 µUSD.
    pub bonus: Option<Bonus>,
    /// The tier that a larger amount would reach.
    pub next_tier: Option<BonusTier>,
}

impl Quote {
    /// The total in the processor's unit.
    pub fn total_cents(&self) -> i64 {
        let cents = i128::from(self.total.get()).checked_div(MICROS_PER_CENT);
        cents.and_then(|cents| i64::try_from(cents).ok()).unwrap_or(0)
    }
}

/// Why an amount cannot be quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuoteError {
    /// Less than can be bought; zero always is.
    #[error("must be at least {min} USD")]
    BelowMinimum {
        /// The smallest amount.
        min: Micros,
    },
    /// More than can be bought.
    #[error("must be at most {max} USD")]
    AboveMaximum {
        /// The largest amount.
        max: Micros,
    },
    /// The total or the bonus does not fit the ledger, or the rules were never validated and make no sense.
    #[error("is too large")]
    Overflow,
}

/// Prices a top-up of `amount`. Only a tenant's pool earns a volume bonus: that is `with_bonus`.
///
/// # Errors
/// [`QuoteError::BelowMinimum`] and [`QuoteError::AboveMaximum`] by the rules, else
/// [`QuoteError::Overflow`].
pub fn quote(amount: Micros, rules: &QuoteRules, with_bonus: bool) -> Result<Quote, QuoteError> {
    if amount <= Micros::ZERO || amount < rules.min {
        return Err(QuoteError::BelowMinimum { min: rules.min });
    }
    if amount > rules.max {
        return Err(QuoteError::AboveMaximum { max: rules.max });
    }
    let total = total(amount, &rules.fees).ok_or(QuoteError::Overflow)?;
    // INVARIANT: the fee is the difference of the other two, so that the parts add up.
    let fee = total.checked_sub(amount).ok_or(QuoteError::Overflow)?;
    let mut bonus = None;
    let mut next_tier = None;
    if with_bonus {
        next_tier = rules.tier_above(amount);
        if let Some(tier) = rules.tier_reached(amount) {
            let given = share(amount, i128::from(tier.bonus_bps), ONE_IN_BPS).ok_or(QuoteError::Overflow)?;
            bonus = (!given.is_zero()).then_some(Bonus {
                amount: given,
                bps: tier.bonus_bps,
            });
        }
    }
    Ok(Quote {
        fee_mode: rules.fees.mode,
        credits_usd: amount,
        fee,
        total,
        bonus,
        next_tier,
    })
}

/// What the card is charged for a positive `amount`.
fn total(amount: Micros, fees: &FeeSchedule) -> Option<Micros> {
    fees.validate().ok()?;
    let whole_cents = ceil_div(i128::from(amount.get()), MICROS_PER_CENT)?.checked_mul(MICROS_PER_CENT)?;
    let cents = match fees.mode {
        // Of each cent charged, `rate_bps` µUSD go to the processor. What is left of `cents` cents,
        // `cents × (10000 − rate_bps) − fixed`, is at least the amount in whole cents, and then the fee
        // rounded up to a cent leaves at least the amount as well.
        FeeMode::PassThrough => {
            let kept_per_cent = MICROS_PER_CENT.checked_sub(i128::from(fees.rate_bps))?;
            ceil_div(
                whole_cents.checked_add(i128::from(fees.fixed.get()))?,
                kept_per_cent,
            )?
        }
        FeeMode::Absorbed => whole_cents.checked_div(MICROS_PER_CENT)?,
    };
    i64::try_from(cents.checked_mul(MICROS_PER_CENT)?)
        .ok()
        .map(Micros::new)
}

/// What `part_cents` of a payment of `whole_cents` stands for, when the whole stands for `amount`: rounded
/// down, and exact for the whole.
///
/// Refunds use it cumulatively. The part is everything returned so far, and a refund takes the difference
/// to what earlier ones took; so any sequence of refunds that returns the whole payment takes the whole
/// amount. `None` unless `0 <= part_cents <= whole_cents`, `whole_cents > 0` and `amount >= 0`.
pub fn returned(part_cents: i64, whole_cents: i64, amount: Micros) -> Option<Micros> {
    if whole_cents <= 0 || !(0..=whole_cents).contains(&part_cents) || amount.is_negative() {
        return None;
    }
    share(amount, i128::from(part_cents), i128::from(whole_cents))
}

/// `amount × numerator ÷ denominator`, rounded down; `None` when it does not fit the ledger.
fn share(amount: Micros, numerator: i128, denominator: i128) -> Option<Micros> {
    let product = i128::from(amount.get()).checked_mul(numerator)?;
    let floor = product.checked_div(denominator)?;
    i64::try_from(floor).ok().map(Micros::new)
}

/// `value ÷ divisor`, rounded up; both positive or zero.
fn ceil_div(value: i128, divisor: i128) -> Option<i128> {
    let up = i128::from(value.checked_rem(divisor)? != 0);
    value.checked_div(divisor)?.checked_add(up)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Spoil = fn(&mut QuoteRules);

    fn usd(text: &str) -> Micros {
        text.parse().unwrap()
    }

    fn tier(min: &str, bonus_bps: u32) -> BonusTier {
        BonusTier {
            min: usd(min),
            bonus_bps,
        }
    }

    fn rules(mode: FeeMode, rate_bps: u32, fixed: &str, tiers: Vec<BonusTier>) -> QuoteRules {
        QuoteRules {
            fees: FeeSchedule {
                mode,
                rate_bps,
                fixed: usd(fixed),
            },
            min: usd("1"),
            max: usd("10000"),
            tiers,
        }
    }

    fn stripe() -> QuoteRules {
        rules(FeeMode::PassThrough, 290, "0.3", vec![])
    }

    // Fault matrix 12
    #[test]
    fn a_passed_through_fee_is_grossed_up_to_the_cent() {
        for (amount, fee, total) in [
            ("10", "0.61", "10.61"),
            ("1", "0.34", "1.34"),
            ("100", "3.3", "103.3"),
            // Of 10.61 the exact fee would leave 10.002, but the fee as it is taken, 0.61, only 10.00.
            ("10.000001", "0.619999", "10.62"),
            ("10.009999", "0.610001", "10.62"),
            ("10000", "298.98", "10298.98"),
        ] {
            let quote = quote(usd(amount), &stripe(), false).unwrap();
            assert_eq!(
                (quote.credits_usd, quote.fee, quote.total),
                (usd(amount), usd(fee), usd(total)),
                "{amount}"
            );
        }
        assert_eq!(quote(usd("10"), &stripe(), false).unwrap().total_cents(), 1061);
    }

    // Fault matrix 12
    #[test]
    fn an_absorbed_fee_leaves_only_the_rounding() {
        let rules = rules(FeeMode::Absorbed, 290, "0.3", vec![]);
        for (amount, fee, total) in [
            ("10", "0", "10"),
            ("10.000001", "0.009999", "10.01"),
            ("10.01", "0", "10.01"),
        ] {
            let quote = quote(usd(amount), &rules, false).unwrap();
            assert_eq!((quote.fee, quote.total), (usd(fee), usd(total)), "{amount}");
            assert_eq!(quote.credits_usd, usd(amount));
        }
    }

    // Fault matrix 7, 103
    #[test]
    fn amounts_outside_the_limits_are_refused_and_the_limits_pass() {
        let below = Err(QuoteError::BelowMinimum { min: usd("1") });
        let above = Err(QuoteError::AboveMaximum { max: usd("10000") });
        for (micros, refused) in [
            (i64::MIN, below),
            (-1, below),
            (0, below),
            (999_999, below),
            (10_000_000_001, above),
            (i64::MAX, above),
        ] {
            assert_eq!(quote(Micros::new(micros), &stripe(), true), refused, "{micros}");
        }
        assert!(quote(usd("1"), &stripe(), true).is_ok());
        assert!(quote(usd("10000"), &stripe(), true).is_ok());
        let mut unvalidated = stripe();
        unvalidated.min = Micros::ZERO;
        assert!(matches!(
            quote(Micros::ZERO, &unvalidated, true),
            Err(QuoteError::BelowMinimum { .. })
        ));
    }

    // Fault matrix 8
    #[test]
    fn what_does_not_fit_the_ledger_is_refused() {
        let mut rules = rules(FeeMode::PassThrough, 5000, "0", vec![tier("1", MAX_BONUS_BPS)]);
        rules.max = Micros::MAX;
        assert_eq!(quote(Micros::MAX, &rules, false), Err(QuoteError::Overflow));
        let third = Micros::new(i64::MAX / 3);
        assert!(quote(third, &rules, false).is_ok());
        assert_eq!(quote(third, &rules, true), Err(QuoteError::Overflow));
        rules.fees.rate_bps = u32::MAX;
        assert_eq!(quote(usd("1"), &rules, false), Err(QuoteError::Overflow));
    }

    #[test]
    fn the_highest_tier_reached_gives_the_bonus() {
        let rules = rules(
            FeeMode::PassThrough,
            0,
            "0",
            vec![tier("50", 500), tier("100", 1000), tier("20000", 5000)],
        );
        let fifty = Some(tier("50", 500));
        let hundred = Some(tier("100", 1000));
        for (amount, bonus, next) in [
            ("49.999999", None, fifty),
            ("50", Some(("2.5", 500)), hundred),
            ("99.999999", Some(("4.999999", 500)), hundred),
            // The tier above the maximum cannot be bought.
            ("100", Some(("10", 1000)), None),
        ] {
            let bonus = bonus.map(|(given, bps)| Bonus {
                amount: usd(given),
                bps,
            });
            let with = quote(usd(amount), &rules, true).unwrap();
            assert_eq!((with.bonus, with.next_tier), (bonus, next), "{amount}");
            let without = quote(usd(amount), &rules, false).unwrap();
            assert_eq!((without.bonus, without.next_tier), (None, None), "{amount}");
        }
    }

    // Fault matrix 11
    #[test]
    fn a_bonus_rounds_down_and_a_bonus_of_nothing_is_none() {
        let mut rules = rules(FeeMode::Absorbed, 0, "0", vec![tier("0.000001", 3333)]);
        rules.min = Micros::new(1);
        assert_eq!(
            quote(usd("0.01"), &rules, true).unwrap().bonus,
            Some(Bonus {
                amount: usd("0.003333"),
                bps: 3333
            })
        );
        assert_eq!(quote(usd("0.000003"), &rules, true).unwrap().bonus, None);
    }

    // Fault matrix 13
    #[test]
    fn rules_that_make_no_sense_are_refused() {
        let valid = rules(
            FeeMode::PassThrough,
            MAX_FEE_RATE_BPS,
            "0",
            vec![tier("5", 1), tier("6", MAX_BONUS_BPS)],
        );
        assert_eq!(valid.validate(), Ok(()));
        let cases: [(Spoil, RulesError); 8] = [
            (|rules| rules.fees.rate_bps = 5001, RulesError::FeeRate),
            (|rules| rules.fees.fixed = Micros::new(-1), RulesError::FixedFee),
            (|rules| rules.min = Micros::ZERO, RulesError::Minimum),
            (|rules| rules.max = Micros::new(999_999), RulesError::Maximum),
            (|rules| rules.tiers[0].min = Micros::ZERO, RulesError::TierMinimum),
            (|rules| rules.tiers[0].bonus_bps = 0, RulesError::TierBonus),
            (|rules| rules.tiers[1].bonus_bps = 100_001, RulesError::TierBonus),
            (
                |rules| rules.tiers[1].min = rules.tiers[0].min,
                RulesError::TierOrder,
            ),
        ];
        for (spoil, error) in cases {
            let mut rules = valid.clone();
            spoil(&mut rules);
            assert_eq!(rules.validate(), Err(error));
            let json = serde_json::to_string(&rules).unwrap();
            assert!(serde_json::from_str::<QuoteRules>(&json).is_err(), "{json}");
        }
    }

    #[test]
    fn rules_are_read_back_from_json_as_written() {
        let json = r#"{"fees":{"mode":"pass_through","rateBps":290,"fixedUsd":"0.3"},"minUsd":"1","maxUsd":"10000","tiers":[{"minUsd":"50","bonusBps":500}]}"#;
        let read: QuoteRules = serde_json::from_str(json).unwrap();
        assert_eq!(
            read,
            rules(FeeMode::PassThrough, 290, "0.3", vec![tier("50", 500)])
        );
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
        for (from, to) in [
            ("\"rateBps\"", "\"rate\":1,\"rateBps\""),
            ("290", "-1"),
            ("290", "\"290\""),
            ("290", "1.5"),
            ("\"0.3\"", "\"-0.3\""),
            ("pass_through", "free"),
            ("\"tiers\"", "\"bonusTiers\""),
            ("\"bonusBps\"", "\"bps\""),
        ] {
            let spoilt = json.replace(from, to);
            assert!(serde_json::from_str::<QuoteRules>(&spoilt).is_err(), "{spoilt}");
        }
    }

    #[test]
    fn refunds_take_back_their_share_and_no_more() {
        let amount = usd("10.000001");
        for (part, whole, share) in [
            (0, 1062, Some("0")),
            (1, 1062, Some("0.009416")),
            (531, 1062, Some("5")),
            (1061, 1062, Some("9.990584")),
            (1062, 1062, Some("10.000001")),
            (1063, 1062, None),
            (-1, 1062, None),
            (0, 0, None),
            (0, -1, None),
        ] {
            assert_eq!(returned(part, whole, amount), share.map(usd), "{part} of {whole}");
        }
        assert_eq!(returned(i64::MAX, i64::MAX, Micros::MAX), Some(Micros::MAX));
        assert_eq!(returned(1, 2, Micros::new(-2)), None);
    }
}
