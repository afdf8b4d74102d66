//! TLS for every client of the process: one provider, and the machine's certificates read once.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

use crate::BuildError;

/// Makes *ring* the process's TLS provider, unless one was chosen already. May be called any number of
/// times.
pub fn install_tls() {
    // An error means that the process has a provider, which is all that is asked for.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The client side of TLS. On a machine without certificates the configuration trusts nobody: plain
/// http works there, and https fails at its handshake, which says so.
pub(crate) fn client_config() -> Result<ClientConfig, BuildError> {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    install_tls();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| BuildError::Tls(error.to_string()))?;
    let config = match Verifier::new(provider) {
        Ok(verifier) => builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth(),
        Err(error) => {
            tracing::warn!(%error, "https calls will fail: this machine has no certificate authorities");
            builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
        }
    };
    Ok(CONFIG.get_or_init(|| config).clone())
}
