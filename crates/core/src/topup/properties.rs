//! Properties of quotes and refunds that hold for any amounts, fees and bonuses.

#![expect(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]

use proptest::prelude::*;

use crate::money::Micros;

use super::{BonusTier, FeeMode, FeeSchedule, MAX_BONUS_BPS, MAX_FEE_RATE_BPS, QuoteRules, quote, returned};

/// What the processor pays out of `cents`, in µUSD, when it rounds its fee to a cent by `round`.
fn paid_out(cents: i128, fees: &FeeSchedule, round: fn(i128) -> i128) -> i128 {
    let fee = cents * i128::from(fees.rate_bps) + i128::from(fees.fixed.get());
    cents * 10_000 - round(fee) * 10_000
}

fn up(micros: i128) -> i128 {
    (micros + 9_999) / 10_000
}

fn half_up(micros: i128) -> i128 {
    (micros + 5_000) / 10_000
}

prop_compose! {
    fn any_rules()(
        mode in prop::sample::select(FeeMode::ALL.to_vec()),
        rate_bps in 0..=MAX_FEE_RATE_BPS,
        fixed in prop_oneof![Just(0), Just(300_000), 0..=5_000_000_i64],
        bonus_bps in 1..=MAX_BONUS_BPS,
    ) -> QuoteRules {
        QuoteRules {
            fees: FeeSchedule { mode, rate_bps, fixed: Micros::new(fixed) },
            min: Micros::new(1),
            max: Micros::MAX,
            tiers: vec![BonusTier { min: Micros::new(1), bonus_bps }],
        }
    }
}

proptest! {
    // Fault matrix 12, 14
    #[test]
    fn the_parts_of_a_quote_add_up(amount in 1..=100_000_000_000_i64, rules in any_rules()) {
        let quote = quote(Micros::new(amount), &rules, true).unwrap();
        prop_assert_eq!(quote.credits_usd, Micros::new(amount));
        prop_assert_eq!(quote.credits_usd.checked_add(quote.fee), Some(quote.total));
        prop_assert!(!quote.fee.is_negative());
        prop_assert_eq!(quote.total_cents() * 10_000, quote.total.get());
    }

    // Fault matrix 12
    #[test]
    fn the_total_is_the_smallest_that_pays_for_the_credits(
        amount in prop_oneof![1..=20_000_000_i64, 1..=100_000_000_000_i64],
        rules in any_rules(),
    ) {
        let total = i128::from(quote(Micros::new(amount), &rules, false).unwrap().total_cents());
        let amount = i128::from(amount);
        match rules.fees.mode {
            FeeMode::Absorbed => prop_assert_eq!(total, up(amount)),
            FeeMode::PassThrough => {
                prop_assert!(paid_out(total, &rules.fees, half_up) >= amount);
                prop_assert!(paid_out(total, &rules.fees, up) >= amount);
                prop_assert!(paid_out(total - 1, &rules.fees, up) < amount);
            }
        }
    }

    // The exact fee and the fee rounded up give one total when the amount is whole cents.
    #[test]
    fn an_amount_in_cents_pays_no_more_than_the_exact_fee(cents in 1..=10_000_000_i64, rules in any_rules()) {
        prop_assume!(rules.fees.mode == FeeMode::PassThrough);
        let amount = i128::from(cents) * 10_000;
        let total = i128::from(quote(Micros::new(cents * 10_000), &rules, false).unwrap().total_cents());
        let kept = |cents: i128| cents * (10_000 - i128::from(rules.fees.rate_bps)) - i128::from(rules.fees.fixed.get());
        prop_assert!(kept(total) >= amount && kept(total - 1) < amount);
    }

    // Fault matrix 11
    #[test]
    fn a_bonus_never_exceeds_its_exact_share(amount in 1..=100_000_000_000_i64, rules in any_rules()) {
        if let Some(bonus) = quote(Micros::new(amount), &rules, true).unwrap().bonus {
            let exact = i128::from(amount) * i128::from(bonus.bps);
            let given = i128::from(bonus.amount.get()) * 10_000;
            prop_assert!(given > 0 && given <= exact && exact - given < 10_000);
        }
    }

    // Fault matrix 14
    #[test]
    fn refunds_in_any_parts_take_the_whole_amount(
        parts in prop::collection::vec(0..=1_000_000_i64, 1..40),
        amount in 0_i64..,
    ) {
        let whole: i64 = parts.iter().sum();
        prop_assume!(whole > 0);
        let (mut so_far, mut taken, mut sum) = (0, Micros::ZERO, 0_i64);
        for part in parts {
            so_far += part;
            let now = returned(so_far, whole, Micros::new(amount)).unwrap();
            prop_assert!(now >= taken);
            sum += now.get() - taken.get();
            taken = now;
        }
        prop_assert_eq!(sum, amount);
    }

    // Fault matrix 8, 12
    #[test]
    fn nothing_panics_whatever_the_integers(
        numbers in prop::array::uniform7(prop_oneof![
            any::<i64>(),
            prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]),
        ]),
        rates in any::<[u32; 2]>(),
        mode in prop::sample::select(FeeMode::ALL.to_vec()),
    ) {
        let [amount, fixed, min, max, tier, part, whole] = numbers;
        let rules = QuoteRules {
            fees: FeeSchedule { mode, rate_bps: rates[0] % 12_000, fixed: Micros::new(fixed) },
            min: Micros::new(min),
            max: Micros::new(max),
            tiers: vec![BonusTier { min: Micros::new(tier), bonus_bps: rates[1] }],
        };
        prop_assert!(rules.validate().is_ok() || rules.validate().is_err());
        if let Ok(quote) = quote(Micros::new(amount), &rules, true) {
            prop_assert_eq!(quote.credits_usd.checked_add(quote.fee), Some(quote.total));
        }
        if let Some(share) = returned(part, whole, Micros::new(amount)) {
            prop_assert!(share <= Micros::new(amount));
        }
    }
}
