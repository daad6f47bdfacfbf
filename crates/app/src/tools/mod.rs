//! Tools: what they are, where they come from, and calls of them on credits.

mod definition;
mod execute;
pub mod import;

pub use definition::{Effects, ToolDefinition, ToolEntry, is_slug};
