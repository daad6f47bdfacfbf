//! Imports over imports: what changes, and which prices hold.
