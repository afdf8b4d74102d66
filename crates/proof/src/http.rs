//! What both clients of the API share: a request that is sent once and says whether it was answered.

use std::time::Duration;

use anyhow::Result;
use reqwest::{Client, ClientBuilder, Method, StatusCode};

/// What a client is made with whose requests may take so long, their answers included.
pub(crate) fn builder(request: Duration) -> ClientBuilder {
    // Fails only where one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().timeout(request).no_proxy()
}

/// A client whose requests take no longer than they are given.
#[derive(Debug, Clone)]
pub(crate) struct Http(Client);

impl Http {
    /// A client whose requests may take so long.
    ///
    /// # Errors
    /// It cannot be set up.
    pub(crate) fn new(request: Duration) -> Result<Self> {
        Ok(Self(builder(request).build()?))
    }

    /// Sends once. Nothing where no answer came that says anything about the request: none at all, or the server's
    /// own trouble.
    pub(crate) async fn send(
        &self,
        method: &Method,
        url: &str,
        body: Option<&str>,
        key: Option<&str>,
    ) -> Option<(StatusCode, String)> {
        let mut request = self.0.request(method.clone(), url);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await.ok()?;
        let status = response.status();
        let text = response.text().await.ok()?;
        (!status.is_server_error()).then_some((status, text))
    }
}
