//! A JSON object with its members in order, doubles kept, and values as the characters that stand there.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object.
pub(crate) struct Members<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The characters of the first member called `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(member, _)| member == name)
            .map(|(_, raw)| raw.get())
    }

    /// A name that stands there more than once.
    pub(crate) fn duplicate(&self) -> Option<&str> {
        let mut seen = BTreeSet::new();
        self.0
            .iter()
            .map(|(name, _)| name.as_ref())
            .find(|name| !seen.insert(*name))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    members.push((name, raw));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A name, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
