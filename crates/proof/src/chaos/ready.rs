//! Whether a server says that it is ready while it cannot write: a write is tried at it as long as the disk is full, and
//! where that was refused, readiness is asked at once.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use reqwest::{Client, Method, StatusCode};
use tokio::sync::watch;

use super::oracle::Oracle;

/// How long one question may take.
const REQUEST: Duration = Duration::from_millis(1_000);
/// The pause between two.
const PAUSE: Duration = Duration::from_millis(60);
/// So many times in a row it was no write of its own that made it ready.
const IN_A_ROW: u32 = 3;

/// Asks one server.
#[derive(Debug, Clone)]
pub struct Ready {
    http: Client,
    oracle: Arc<Mutex<Oracle>>,
    server: watch::Receiver<SocketAddr>,
    version: Arc<Mutex<u64>>,
}

impl Ready {
    /// Asks whoever is at `server`.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn new(server: watch::Receiver<SocketAddr>) -> Result<Self> {
        let http = Client::builder().timeout(REQUEST).no_proxy().build()?;
        let oracle =
            Oracle::new("a server that has just refused a write for its store's sake does not say that it is ready");
        Ok(Self { http, oracle: Arc::new(Mutex::new(oracle)), server, version: Arc::default() })
    }

    async fn ask(&self, method: Method, path: &str, body: String) -> Option<StatusCode> {
        let server = *self.server.borrow();
        let request = self.http.request(method, format!("http://{server}{path}"));
        Some(request.body(body).send().await.ok()?.status())
    }

    /// An agent that nobody uses, in a version that nobody has put.
    fn agent(&self) -> String {
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        *version += 1;
        // Large: it takes what room the store had before the disk was full.
        let note = "x".repeat(60_000);
        format!(
            "agent: chaos-probe\nversion: \"{version}\"\nplan:\n  nodes:\n    - {{ id: n, kind: transform, output: {note} }}\n"
        )
    }

    /// Tries while the disk is full: as long as this is not dropped. A write that fits into what room is left makes a server
    /// ready, rightly: one that is ready each time between some refusals is so without looking.
    pub async fn look(&self) {
        let mut in_a_row = 0;
        loop {
            let refused = self.ask(Method::PUT, "/api/agents/chaos-probe", self.agent()).await;
            if refused == Some(StatusCode::SERVICE_UNAVAILABLE)
                && let Some(ready) = self.ask(Method::GET, "/readyz", String::new()).await
            {
                in_a_row = if ready == StatusCode::OK { in_a_row + 1 } else { 0 };
                let mut oracle = self.oracle.lock().unwrap_or_else(PoisonError::into_inner);
                oracle.case(in_a_row < IN_A_ROW, || format!("/readyz was answered with {ready}"));
            } else {
                in_a_row = 0;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What it came to.
    #[must_use]
    pub fn oracle(&self) -> Oracle {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
