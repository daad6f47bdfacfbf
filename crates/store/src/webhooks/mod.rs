//! Webhooks, with the SQL that both databases share: endpoints, events as they are shown, and deliveries.
//!
//! None of these tables is part of the books: nothing here changes money, and a batch does not wait for it.

mod deliveries;
mod endpoints;
mod events;
mod records;
mod verdicts;

pub use records::{
    Canceling, ClaimedDelivery, DeliveryReport, DeliveryRow, DueEndpoint, EndpointChange, EventFilter,
    FanOut, FanOutPlan, NextAttempt, Pruned, ReplayOf, Slots, Span, Verdict, WebhookEndpoint,
};
