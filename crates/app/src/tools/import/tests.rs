//! Documents, good and hostile.
