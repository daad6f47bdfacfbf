//! Everything that leaves the gateway over HTTP: AI providers, priced tool endpoints, payment processors,
//! webhooks, an identity provider's keys, a facilitator and its chain; and the simulated provider, the builtin
//! processor and the simulated facilitator that answer without a socket.
//!
//! The rule of this crate: one call here is at most one request on the wire, and every failure says whether
//! that request may have been sent ([`UpstreamError::sent`]); only a processor, whose requests carry an
//! idempotency key, repeats them by itself. Other retrying, holds and charges are the app's business; prices are
//! `core`'s; what the client sees is the server's.

#![forbid(unsafe_code)]

pub mod client;
mod connect;
pub mod error;
pub mod guard;
pub mod headers;
pub mod identity;
pub mod openai;
pub mod payments;
pub mod processor;
pub mod provider;
pub mod resolve;
pub mod secret;
pub mod simulated;
pub mod sse;
pub mod tool;
pub mod webhook;

pub use client::{Client, ClientSettings};
pub use error::{Phase, StreamFault, UpstreamError};
pub use guard::Guard;
pub use identity::{IdentityError, IdentityProvider, KeyProvider, PublicKey};
pub use openai::stream::{EventStream, StreamSummary};
pub use openai::{ChatApi, Completion};
pub use payments::{
    ChainReader, ChainSettings, Facilitator, FacilitatorError, FacilitatorSettings, Fate, HttpFacilitator,
    PayerKey, Settled, SignedPayment, SimulatedFacilitator, SimulatedSettings, Verdict,
};
pub use processor::{BuiltinProcessor, Processor, ProcessorError, StripeProcessor, StripeSettings};
pub use provider::{BuildError, Provider, ProviderKind, ProviderSettings};
pub use resolve::{BoundedResolver, Resolver, SystemResolver};
pub use secret::Secret;
pub use tool::{
    ArgFault, ArgPlace, ArgSettings, ArgStyle, ArgsIn, BodyEncoding, CallBounds, HttpEndpoint, QuoteSettings,
    ToolMethod, ToolReply, ToolRequest,
};
pub use webhook::{
    Attempt, AttemptOutcome, Destination, DestinationError, WebhookRequest, WebhookSecret, WebhookSender,
    WebhookSettings,
};
