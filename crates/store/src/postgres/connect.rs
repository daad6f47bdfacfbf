//! Connection settings, TLS, and the schema.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::oneshot;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresOptions;
use super::convert::{describe, store_error};
use crate::error::StoreError;
use crate::migrate;

/// Held while the schema is migrated, so that processes that start together take turns.
const MIGRATION_LOCK: i64 = 0x7475_726e_7069_6b65;

/// How long a dropped connection may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(1);

/// How to reach the server.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Option<MakeRustlsConnect>,
}

/// A connection; the task that drives it ends with it.
pub(super) struct Connected {
    pub(super) client: Client,
    _held: oneshot::Sender<()>,
}

impl Target {
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, StoreError> {
        let mut config: Config = options.url.parse().map_err(|error: tokio_postgres::Error| {
            StoreError::Unavailable(format!("database URL: {error}"))
        })?;
        if config.get_application_name().is_none() {
            config.application_name("turnpike");
        }
        config.connect_timeout(options.connect_timeout);
        // A peer that vanished without a word is noticed within seconds, not hours.
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(3));
        config.keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(10));
        let tls = if config.get_ssl_mode() == SslMode::Require {
            Some(tls(options.root_certificates.as_deref())?)
        } else {
            None
        };
        Ok(Self { config, tls })
    }

    /// Opens one connection; the connect timeout covers the whole handshake.
    pub(super) async fn connect(&self) -> Result<Connected, StoreError> {
        let limit = self
            .config
            .get_connect_timeout()
            .copied()
            .unwrap_or(Duration::from_secs(2));
        tokio::time::timeout(limit, self.handshake())
            .await
            .map_err(|_elapsed| StoreError::Unavailable("connecting to the database timed out".to_owned()))?
            .map_err(|error| StoreError::Unavailable(describe(&error)))
    }

    async fn handshake(&self) -> Result<Connected, tokio_postgres::Error> {
        if let Some(tls) = self.tls.clone() {
            let (client, connection) = self.config.connect(tls).await?;
            Ok(drive(client, connection))
        } else {
            let (client, connection) = self.config.connect(NoTls).await?;
            Ok(drive(client, connection))
        }
    }
}

/// Drives a connection until its client is dropped, and then only for as long as a farewell takes: a peer that has
/// vanished does not keep it.
fn drive(
    client: Client,
    connection: impl Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
) -> Connected {
    let (held, dropped) = oneshot::channel();
    tokio::spawn(async move {
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            _ = dropped => tokio::time::timeout(FAREWELL, connection).await.unwrap_or(Ok(())),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a database connection ended");
        }
    });
    Connected { client, _held: held }
}

/// Certificates are always checked: against `roots`, or those of the system.
fn tls(roots: Option<&Path>) -> Result<MakeRustlsConnect, StoreError> {
    let failed =
        |error: &dyn std::fmt::Display| StoreError::Unavailable(format!("TLS to the database: {error}"));
    let mut store = RootCertStore::empty();
    if let Some(path) = roots {
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))? {
            let certificate = certificate.map_err(|error| failed(&error))?;
            store.add(certificate).map_err(|error| failed(&error))?;
        }
    } else {
        let (added, _ignored) =
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if added == 0 {
            return Err(failed(&"the system has no root certificates"));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Brings the schema up to date, one process at a time.
pub(super) async fn migrate_schema(connected: &mut Connected) -> Result<(), StoreError> {
    let client = &mut connected.client;
    // Ends with the session, whatever happens.
    client
        .execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK])
        .await
        .map_err(|error| store_error(&error))?;
    client
        .batch_execute(migrate::CREATE_TABLE)
        .await
        .map_err(|error| store_error(&error))?;
    let rows = client
        .query(migrate::LIST, &[])
        .await
        .map_err(|error| store_error(&error))?;
    let mut applied: Vec<(i64, String)> = Vec::with_capacity(rows.len());
    for row in &rows {
        let read = || Ok::<_, tokio_postgres::Error>((row.try_get(0)?, row.try_get(1)?));
        applied.push(read().map_err(|error| store_error(&error))?);
    }
    for migration in migrate::pending(migrate::POSTGRES, &applied)? {
        let transaction = client.transaction().await.map_err(|error| store_error(&error))?;
        transaction
            .batch_execute(migration.sql)
            .await
            .map_err(|error| store_error(&error))?;
        transaction
            .execute(
                migrate::RECORD,
                &[&migration.version, &migration.name, &migration.checksum()],
            )
            .await
            .map_err(|error| store_error(&error))?;
        transaction.commit().await.map_err(|error| store_error(&error))?;
    }
    client
        .execute("SELECT pg_advisory_unlock($1)", &[&MIGRATION_LOCK])
        .await
        .map_err(|error| store_error(&error))?;
    warn_of_lost_commits(client).await
}

/// A charge must be durable before it is answered; a server that is set up otherwise is named in the log.
async fn warn_of_lost_commits(client: &Client) -> Result<(), StoreError> {
    let sql = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') \
               AND setting = 'off'";
    for row in client
        .query(sql, &[])
        .await
        .map_err(|error| store_error(&error))?
    {
        let name: String = row.try_get(0).map_err(|error| store_error(&error))?;
        tracing::warn!("the database runs with {name} = off: a crash of it can lose answered charges");
    }
    Ok(())
}
