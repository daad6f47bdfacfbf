//! Tools: what they are, where they come from, and calls of them on credits.

mod definition;
mod execute;
pub mod import;
mod imports;

pub use definition::{Effects, ToolDefinition, ToolEntry, is_slug};
pub(crate) use imports::OperatorImports;
pub use imports::ToolImport;
