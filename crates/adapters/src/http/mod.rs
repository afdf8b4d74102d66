//! HTTP tools (INTERFACE, HTTP tools).
//!
//! | what happened | pure, idempotent | `at_most_once` |
//! |---|---|---|
//! | no connection: refused, DNS, TLS, too slow | `NotSent`, to be retried | the same |
//! | a rule of ours forbids it | `NotSent`, permanent | the same |
//! | 425, 429 | `RefusedRetryable` | the same |
//! | 408, 5xx, timeout, broken connection, unreadable 2xx | `Unknown` | `Unknown` |
//! | 409 | `RefusedRetryable` | `Unknown`; `RefusedPermanent` where listed |
//! | 3xx | GET: followed; else `RefusedPermanent` | `Unknown` |
//! | any other 4xx | `RefusedPermanent` | the same |
//!
//! `Unknown` is what is known of the call. The runtime makes "retryable" of it for pure and idempotent
//! tools, and "in doubt" for the others.
//!
//! Calls of `at_most_once` tools get a client of their own each, and with it a fresh connection: on a
//! kept one a request can meet the other side's closing, and nobody knows what became of it. A connection
//! that is not made within three quarters of the call's time is given up as "not sent", so that our own
//! timeout, after which nothing is known, cannot hit a call that never left.

mod request;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::plan::{EffectClass, HttpTool};
use aetheris_runtime::ports::{ToolCall, ToolOutcome};
use reqwest::{Client, Method, Response};

use crate::BuildError;
use crate::exchange::{CONNECT_TIME_MAX, Deadline, Elapsed, client_builder};
use crate::guard::{Guard, GuardedResolver, Lookup};
use crate::secret::EnvSource;
use request::Prepared;
use verdict::{Redirect, Verdict};

/// Most redirects that one call follows.
const REDIRECTS_MAX: usize = 5;

/// Calls HTTP tools.
pub(crate) struct HttpTools {
    env: EnvSource,
    guard: Guard,
    resolver: Arc<GuardedResolver>,
    /// For pure and idempotent tools; keeps connections.
    shared: Client,
}

impl HttpTools {
    pub(crate) fn new(guard: Guard, lookup: Arc<dyn Lookup>, env: EnvSource) -> Result<Self, BuildError> {
        let resolver = Arc::new(GuardedResolver { guard: guard.clone(), lookup });
        let shared = client_builder()?.dns_resolver(Arc::clone(&resolver));
        let shared = shared.build().map_err(|error| BuildError::Client(error.to_string()))?;
        Ok(Self { env, guard, resolver, shared })
    }

    /// Calls once, within the call's timeout.
    pub(crate) async fn call(&self, call: &ToolCall, tool: &HttpTool) -> ToolOutcome {
        let deadline = Deadline::after(call.timeout);
        let mut request = match Prepared::render(call, tool, &self.env) {
            Ok(request) => request,
            Err(error) => return ToolOutcome::NotSent { error, permanent: true },
        };
        if let Err(blocked) = self.guard.check_url(&request.url) {
            return ToolOutcome::NotSent { error: request.blocked(&blocked), permanent: true };
        }
        let client = match self.client(call.tool.effect, call.timeout) {
            Ok(client) => client,
            Err(error) => {
                let error = request.failure("http_client", &error.to_string());
                return ToolOutcome::NotSent { error, permanent: false };
            }
        };
        for hop in 0..=REDIRECTS_MAX {
            let response = match self.send(&client, &request, deadline).await {
                Ok(response) => response,
                Err(outcome) => return verdict::after_hops(hop, outcome),
            };
            let verdict = Verdict { class: call.tool.effect, deadline, request: &request, tool };
            let location = match verdict.of(response).await {
                Ok(outcome) => return outcome,
                Err(Redirect(location)) => location,
            };
            if let Err(error) = request.redirect(location, &self.guard) {
                return ToolOutcome::RefusedPermanent(error);
            }
        }
        let message = format!("was redirected more than {REDIRECTS_MAX} times");
        ToolOutcome::RefusedPermanent(request.failure("too_many_redirects", &message))
    }

    async fn send(&self, client: &Client, request: &Prepared, deadline: Deadline) -> Result<Response, ToolOutcome> {
        match deadline.within(client.execute(request.message())).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(verdict::of_error(&error, request)),
            Err(Elapsed) => Err(verdict::timed_out(request)),
        }
    }

    fn client(&self, class: EffectClass, timeout: Duration) -> Result<Client, BuildError> {
        match class {
            EffectClass::Pure | EffectClass::Idempotent => Ok(self.shared.clone()),
            EffectClass::AtMostOnce => client_builder()?
                .dns_resolver(Arc::clone(&self.resolver))
                .pool_max_idle_per_host(0)
                .connect_timeout((timeout / 4 * 3).min(CONNECT_TIME_MAX))
                .build()
                .map_err(|error| BuildError::Client(error.to_string())),
        }
    }
}

/// The methods that tools may use.
fn method(name: &str) -> Option<Method> {
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE]
        .into_iter()
        .find(|method| method.as_str().eq_ignore_ascii_case(name))
}
