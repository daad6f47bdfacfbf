//! Webhooks, with the SQL that both databases share: endpoints, events as they are shown, and deliveries.
//!
//! None of these tables is part of the books: nothing here changes money, and a batch does not wait for it.

mod deliveries;
mod endpoints;
mod events;
mod records;

pub use records::{
    ClaimedDelivery, DeliveryReport, DeliveryRow, DueEndpoint, EndpointChange, EventFilter, FanOut,
    NextAttempt, ReplayOf, Slots, WebhookEndpoint,
};
