//! Faults of the databases. Each test shows that its fault was really reached.

mod coming_into_use;
mod commit;
mod crash;
mod deadlock;
mod disk;
mod pressure;
pub(crate) mod proxy;
mod tls;
