//! Tools: what they are, and calls of them on credits.

mod definition;
mod execute;

pub use definition::{Effects, ToolDefinition, ToolEntry};
