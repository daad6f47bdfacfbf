//! Scrubbing.
