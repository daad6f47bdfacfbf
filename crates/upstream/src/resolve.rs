//! Names to addresses.
//!
//! The rule: a resolver only answers; whether an address may be connected to is [`crate::guard`]'s decision,
//! made on every answer. It is a setting so that tests can answer differently each time.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tokio::sync::Semaphore;
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

/// The system's own resolver for names that users give: so many lookups at once and no more.
///
/// A lookup holds a thread of the runtime until the system gives up, whoever waits for it; what is read from SQLite
/// needs such threads, too.
#[derive(Clone, Debug)]
pub struct BoundedResolver {
    places: Arc<Semaphore>,
}

impl BoundedResolver {
    /// At most `lookups` at once; others wait.
    pub fn new(lookups: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(lookups)),
        }
    }
}

#[async_trait]
impl Resolver for BoundedResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let place = self
            .places
            .clone()
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let name = name.to_owned();
        // A task of its own, so that the place is held as long as the thread, also when nobody waits any more.
        let lookup = tokio::spawn(async move {
            let found = SystemResolver.resolve(&name).await;
            drop(place);
            found
        });
        lookup.await.map_err(io::Error::other)?
    }
}
