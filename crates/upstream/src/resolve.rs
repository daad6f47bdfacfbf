//! Names to addresses.
//!
//! The rule: a resolver only answers; whether an address may be connected to is [`crate::guard`]'s decision,
//! made on every answer. It is a setting so that tests can answer differently each time.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

/// Where names are looked up.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// All addresses of `name`; their ports are not looked at.
    ///
    /// # Errors
    /// Whatever keeps the name from being resolved.
    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>>;
}

/// The system's own resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let name: Name = name.parse().map_err(io::Error::other)?;
        Ok(GaiResolver::new().call(name).await?.collect())
    }
}
