//! The binary `turnpike`: command line, configuration, inbound HTTP, worker loops.

#![forbid(unsafe_code)]

mod admin_socket;
mod cli;
mod clock;
mod commands;
mod config;
mod dev;
mod http;
mod identity;
mod jobs;
mod metrics;
mod pages;
mod payments;
mod run;
mod service;
mod telemetry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
