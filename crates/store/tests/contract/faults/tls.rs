//! TLS to PostgreSQL: asked for, it is used and the certificate is checked.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use turnpike_store::{PostgresOptions, PostgresStore, StoreError, Upkeep as _};

use super::crash::Cluster;
use crate::world::sql;

/// Gives `path` to the user that the server runs as.
fn hand_over(path: &Path, data: &Path) {
    let owner = std::fs::metadata(data).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_used_when_asked_for_and_its_certificate_is_checked() {
    let cluster = Cluster::start().await;
    let data = Path::new(&cluster.directory).join("data");
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let foreign = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    for (name, text) in [
        ("server.crt", own.cert.pem()),
        ("server.key", own.signing_key.serialize_pem()),
    ] {
        let path = data.join(name);
        std::fs::write(&path, text).unwrap();
        hand_over(&path, &data);
    }
    sql(&cluster.url, "ALTER SYSTEM SET ssl = on").await.unwrap();
    sql(&cluster.url, "SELECT pg_reload_conf()").await.unwrap();
    while sql(&cluster.url, "SHOW ssl").await.unwrap().as_deref() != Some("on") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }

    let roots = tempfile::tempdir().unwrap();
    let connect = async |certificate: Option<&rcgen::Certificate>| {
        let mut options = PostgresOptions::new(format!("{}?sslmode=require", cluster.url));
        options.root_certificates = certificate.map(|certificate| {
            let path = roots.path().join("roots.pem");
            std::fs::write(&path, certificate.pem()).unwrap();
            path
        });
        PostgresStore::connect(options).await
    };
    for wrong in [None, Some(&foreign.cert)] {
        let refused = connect(wrong).await;
        assert!(
            matches!(refused, Err(StoreError::Unavailable(_))),
            "{:?}",
            refused.err()
        );
    }
    let store = connect(Some(&own.cert)).await.unwrap();
    store.ping().await.unwrap();
    let encrypted = "SELECT bool_and(ssl)::text FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'turnpike'";
    assert_eq!(
        sql(&cluster.url, encrypted).await.unwrap().as_deref(),
        Some("true")
    );
    store.close().await;
}
