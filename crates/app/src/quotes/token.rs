//! The token that a quote is used with: its id and 32 random bytes, of which a hash is kept.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use turnpike_core::ids::QuoteId;
use uuid::Uuid;

const PREFIX: &str = "qt_";

/// A fresh token of a quote.
pub(super) fn make(id: QuoteId, random: &[u8; 32]) -> String {
    let mut bytes = id.0.as_bytes().to_vec();
    bytes.extend_from_slice(random);
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// The quote that `token` is of, if it has the form of a token.
pub(super) fn quote_of(token: &str) -> Option<QuoteId> {
    let bytes = URL_SAFE_NO_PAD.decode(token.strip_prefix(PREFIX)?).ok()?;
    let (id, random) = bytes.split_first_chunk::<16>()?;
    (random.len() == 32).then(|| QuoteId(Uuid::from_bytes(*id)))
}

/// What is kept of a token.
pub(super) fn hash(token: &str) -> Arc<str> {
    hex::encode(Sha256::digest(token)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_quote() {
        let id = QuoteId(Uuid::from_u128(7));
        let token = make(id, &[9; 32]);
        assert_eq!((token.len(), quote_of(&token)), (67, Some(id)));
        assert_ne!(hash(&token), hash(&make(id, &[8; 32])));
        for bad in [
            "",
            "qt_",
            "qt_AAAA",
            &token[3..],
            &token[..66],
            &format!("{token}A"),
        ] {
            assert_eq!(quote_of(bad), None, "{bad}");
        }
    }
}
