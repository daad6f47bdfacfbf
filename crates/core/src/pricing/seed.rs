//! The prices that are compiled in, so that a fresh installation can be tried without any other file.

use super::{Catalogue, PriceError};

/// The hand-checked price file of the demo provider.
const SEED: &str = include_str!("../../seed/prices.toml");

/// The compiled-in catalogue.
///
/// # Errors
/// [`PriceError::Invalid`] when the file is wrong, which a test rules out.
pub fn seed() -> Result<Catalogue, PriceError> {
    Catalogue::from_toml(SEED)
}

#[cfg(test)]
mod tests {
    use crate::money::PicoUsd;

    use super::*;

    #[test]
    fn the_seed_parses_and_has_both_demo_models() {
        let catalogue = seed().unwrap();
        assert_eq!(catalogue.len(), 2);
        let flash = catalogue.find("vendor-v4-flash").unwrap();
        let rates = [flash.rates.input, flash.rates.cached_input, flash.rates.output];
        assert_eq!(
            rates.map(|rate| rate.map(PicoUsd::get)),
            [Some(140_000), Some(14_000), Some(280_000)]
        );
        let pro = catalogue.find("sim/vendor-v4-pro").unwrap();
        assert_eq!(
            (pro.reasoning, pro.fim, pro.recommended_min_output_tokens),
            (true, true, Some(4000))
        );
        for price in catalogue.iter() {
            assert_eq!(
                (price.context_length, price.max_output_tokens),
                (Some(1_000_000), Some(384_000))
            );
            assert!(!price.accepts_images());
        }
    }

    #[test]
    fn the_seed_survives_being_written_and_read_again() {
        let catalogue = seed().unwrap();
        assert_eq!(
            Catalogue::from_toml(&catalogue.to_toml().unwrap()).unwrap(),
            catalogue
        );
    }
}
