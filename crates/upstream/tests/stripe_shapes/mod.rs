//! The shapes of Stripe's API, as far as they are used here: an example of each object, and what each request may
//! have. Names and types are Stripe's, values are ours.
//!
//! Where Stripe's published documents lie beside the repository they are held against them, so that they cannot drift.

use std::fs;

use serde_json::Value;

fn read(path: &str) -> Value {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// An example of an object.
pub(crate) fn example(object: &str) -> Value {
    read("tests/stripe_shapes/objects.json")[object].clone()
}

/// The schema of a request: of what is sent here, nothing else.
pub(crate) fn request_schema(operation: &str) -> Value {
    read("tests/stripe_shapes/requests.json")[operation].clone()
}

/// Stripe's published document `name`, where it lies beside the repository.
pub(crate) fn published(name: &str) -> Option<Value> {
    let path = format!(
        "{}/../../../shared/rigs/stripe/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    match fs::read(path) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
        Err(error) => {
            eprintln!("{name} of Stripe is not beside the repository: {error}");
            None
        }
    }
}
