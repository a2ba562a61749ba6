//! TLS towards hosts: certificate and key from two PEM files, read again when they change.
//!
//! A pair that cannot be used leaves the one before in place; that is told once.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::settings::TlsSettings;

/// How often the files are looked at, at most.
const LOOK: Duration = Duration::from_secs(1);

/// What tells one state of the two files from another.
type Stamp = [Option<(SystemTime, u64)>; 2];

/// The certificate as it is now.
pub(super) struct Tls {
    files: TlsSettings,
    state: Mutex<State>,
}

struct State {
    config: Arc<ServerConfig>,
    stamp: Stamp,
    looked: Instant,
}

impl Tls {
    /// Reads the files for the first time.
    pub(super) fn load(files: &TlsSettings) -> io::Result<Self> {
        let state = State { stamp: stamp(files), config: read(files)?, looked: Instant::now() };
        Ok(Self { files: files.clone(), state: Mutex::new(state) })
    }

    /// For a new connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK {
            state.looked = Instant::now();
            let stamp = stamp(&self.files);
            if stamp != state.stamp {
                state.stamp = stamp;
                match read(&self.files) {
                    Ok(config) => {
                        tracing::info!("the certificate was read again");
                        state.config = config;
                    }
                    Err(error) => tracing::warn!(%error, "the changed certificate cannot be used, the old one stays"),
                }
            }
        }
        TlsAcceptor::from(Arc::clone(&state.config))
    }
}

fn stamp(files: &TlsSettings) -> Stamp {
    [&files.cert, &files.key].map(|file| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.modified().ok()?, found.len()))
    })
}

fn read(files: &TlsSettings) -> io::Result<Arc<ServerConfig>> {
    let fault = |file: &Path, why: &dyn std::fmt::Display| io::Error::other(format!("{}: {why}", file.display()));
    let chain: Vec<_> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|why| fault(&files.cert, &why))?;
    if chain.is_empty() {
        return Err(fault(&files.cert, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|why| fault(&files.key, &why))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|why| fault(&files.cert, &why))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
