//! Tools: what they are, how they are found, and calls of them on credits.

mod access;
mod definition;
mod describe;
mod desk;
mod execute;
pub mod search;

pub use definition::{Effects, ToolDefinition, ToolEntry};
pub use desk::{ToolCaller, ToolDesk};
