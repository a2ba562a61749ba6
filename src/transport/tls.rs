//! TLS towards others: verified by the machine's roots (`SSL_CERT_FILE` and `SSL_CERT_DIR` are respected).
//!
//! Deliberately opens no connection. Used by the connections to servers, and by `fetch`.

use std::path::Path;
use std::sync::Arc;

use rustls_native_certs::load_native_certs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Verified by the machine's roots, and by the certificates in this PEM file, where one is given; an error is safe to
/// show. `protocols` are what is spoken within, the most welcome one first.
pub fn client(more: Option<&Path>, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, String> {
    let found = load_native_certs();
    let mut roots = RootCertStore::empty();
    let (mut added, _) = roots.add_parsable_certificates(found.certs);
    if let Some(file) = more {
        let unusable = |why: &dyn std::fmt::Display| format!("its `ca` cannot be used: {why}");
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))? {
            let certificate = certificate.map_err(|error| unusable(&error))?;
            roots.add(certificate).map_err(|error| unusable(&error))?;
            added += 1;
        }
    }
    if added == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        return Err(format!("no root certificates were found on this machine{why}"));
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("invariant: the provider knows the default protocol versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}
