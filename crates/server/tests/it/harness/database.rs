//! A fresh database per test, and the few statements with which tests reach behind the service.

use std::path::{Path, PathBuf};

use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

use super::Store;

/// Names the cluster for the tests.
const URL: &str = "TURNPIKE_TEST_POSTGRES_URL";

/// A test's database.
#[derive(Debug)]
pub enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A database in the cluster.
    Postgres {
        /// Its URL.
        url: String,
        /// Its name.
        name: String,
        /// The cluster's URL.
        cluster: String,
    },
}

fn cluster() -> String {
    std::env::var(URL).unwrap_or_else(|_| {
        panic!(
            "{URL} is not set, so nothing is known about PostgreSQL: \
             export {URL}=\"$(scripts/postgres-for-tests)\""
        )
    })
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .unwrap_or_else(|error| panic!("cannot reach the cluster of {URL}: {error}"));
    tokio::spawn(async move {
        let _ended = connection.await;
    });
    client
}

impl Database {
    /// Makes one.
    pub async fn create(store: Store, other: Option<&str>, data: &Path) -> Self {
        match store {
            Store::Sqlite => Self::Sqlite(data.join("turnpike.db")),
            Store::Postgres => {
                let cluster = other.map_or_else(cluster, str::to_owned);
                let name = format!("it_{}", uuid::Uuid::new_v4().simple());
                let admin = connect(&cluster).await;
                admin
                    .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0"))
                    .await
                    .unwrap();
                let base = cluster
                    .rsplit_once('/')
                    .map_or(cluster.as_str(), |(base, _)| base);
                let url = format!("{base}/{name}");
                Self::Postgres { url, name, cluster }
            }
        }
    }

    /// What stands in the configuration.
    pub fn url(&self) -> String {
        match self {
            Self::Sqlite(_) => "sqlite://turnpike.db".to_owned(),
            Self::Postgres { url, .. } => url.clone(),
        }
    }

    /// Runs statements that both stores understand, beside the service.
    pub async fn execute(&self, sql: &str) {
        match self {
            Self::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection
                    .busy_timeout(std::time::Duration::from_secs(10))
                    .unwrap();
                connection.execute_batch(sql).unwrap();
            }
            Self::Postgres { url, .. } => {
                let client = connect(url).await;
                // It locks rows in an order of its own, and may be chosen to give way to the service.
                let gave_way =
                    |error: &tokio_postgres::Error| error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED);
                let mut result = client.batch_execute(sql).await;
                while result.as_ref().is_err_and(gave_way) {
                    result = client.batch_execute(sql).await;
                }
                result.unwrap();
            }
        }
    }

    /// The one integer that a query gives.
    pub async fn number(&self, sql: &str) -> i64 {
        match self {
            Self::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection
                    .busy_timeout(std::time::Duration::from_secs(10))
                    .unwrap();
                connection.query_row(sql, [], |row| row.get(0)).unwrap()
            }
            Self::Postgres { url, .. } => {
                let sql = format!("SELECT ({sql})::BIGINT");
                connect(url).await.query_one(&sql, &[]).await.unwrap().get(0)
            }
        }
    }
}

impl Database {
    /// The names of its tables.
    pub async fn tables(&self) -> Vec<String> {
        match self {
            Self::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                let mut names = connection
                    .prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
                    .unwrap();
                let names = names.query_map([], |row| row.get(0)).unwrap();
                names.map(Result::unwrap).collect()
            }
            Self::Postgres { url, .. } => {
                let sql = "SELECT table_name::TEXT FROM information_schema.tables
                           WHERE table_schema = 'public' ORDER BY table_name";
                let rows = connect(url).await.query(sql, &[]).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Self::Postgres { name, cluster, .. } = self else {
            return;
        };
        let (name, cluster) = (name.clone(), cluster.clone());
        // A runtime of its own: this may run inside one.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let admin = connect(&cluster).await;
                let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                let _gone = admin.batch_execute(&drop).await;
            });
        });
        let _ended = dropping.join();
    }
}
