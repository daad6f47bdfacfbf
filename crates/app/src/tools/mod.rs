//! Tools: what they are, and calls of them on credits.

mod definition;
mod desk;
mod execute;

pub use definition::{Effects, ToolDefinition, ToolEntry};
pub use desk::ToolCaller;
pub(crate) use execute::{ToolPrice, price_tool};
