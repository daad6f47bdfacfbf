//! Tools: what they are, where they come from, how they are found, and calls of them on credits.

mod access;
mod definition;
mod describe;
mod desk;
mod execute;
pub mod import;
mod imports;
pub mod search;
mod weight;

pub use definition::{Effects, ToolDefinition, ToolEntry, is_slug};
pub use desk::{ToolCaller, ToolDesk};
pub(crate) use execute::{ToolPrice, price_tool};
pub(crate) use imports::OperatorImports;
pub use imports::ToolImport;
