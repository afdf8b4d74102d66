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

use aetheris_core::plan::{EffectClass, HttpTool};
use aetheris_runtime::ports::{OUT_OF_FILES, OWN_ADDRESSES_UNKNOWN, ToolCall, ToolOutcome};
use reqwest::{Client, Method, Response};

use crate::exchange::{CONNECT_TIME_MAX, Deadline, Elapsed, client_builder, is_out_of_files};
use crate::guard::{self, Blocked, Guard, GuardedResolver, Lookup, Why};
use crate::own::{AtPort, OwnAddresses};
use crate::secret::EnvSource;
use crate::toolbox::Unusable;
use crate::{BuildError, OF_SERVER};
use request::Prepared;
use verdict::{Redirect, Verdict};

/// Most redirects that one call follows.
const REDIRECTS_MAX: usize = 5;

/// Calls HTTP tools.
pub(crate) struct HttpTools {
    env: EnvSource,
    guard: Guard,
    lookup: Arc<dyn Lookup>,
    own: Arc<dyn OwnAddresses>,
    /// For pure and idempotent tools; keeps connections.
    shared: Client,
}

impl HttpTools {
    pub(crate) fn new(
        guard: Guard,
        lookup: Arc<dyn Lookup>,
        own: Arc<dyn OwnAddresses>,
        env: EnvSource,
    ) -> Result<Self, BuildError> {
        let resolver = GuardedResolver { guard: guard.clone(), lookup: Arc::clone(&lookup), own: None };
        let shared = client_builder()?.dns_resolver(Arc::new(resolver));
        let shared = shared.build().map_err(|error| BuildError::Client(error.to_string()))?;
        Ok(Self { env, guard, lookup, own, shared })
    }

    /// Why a tool could never be called from here, as far as its file says so.
    pub(crate) fn unusable(&self, tool: &HttpTool) -> Vec<Unusable> {
        let forbidden = |(name, place)| Some(Unusable { place, why: self.env.allows(name, OF_SERVER).err()? });
        let names = request::all_names(tool);
        let mut problems: Vec<Unusable> =
            names.iter().filter_map(|(name, place)| forbidden((name.as_str(), place.clone()))).collect();
        let address = request::written_address(tool);
        let blocked = address.and_then(|url| self.guard.check_url(&url).err());
        problems.extend(blocked.map(|blocked| Unusable { place: "/url".to_owned(), why: blocked.by(OF_SERVER) }));
        problems
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
        for hop in 0..=REDIRECTS_MAX {
            let client = match self.client(call, &request) {
                Ok(client) => client,
                Err(outcome) => return verdict::after_hops(hop, outcome),
            };
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

    /// The client of one hop. A port at which this store listens gets one of its own, whose resolver knows
    /// the listeners: names are judged where they become addresses.
    fn client(&self, call: &ToolCall, request: &Prepared) -> Result<Client, ToolOutcome> {
        let not_sent =
            |code: &str, what: &str| Err(ToolOutcome::NotSent { error: request.failure(code, what), permanent: false });
        let own = match self.own.listening() {
            Ok(listening) => request.url.port_or_known_default().and_then(|port| AtPort::of(&listening, port)),
            Err(error) => return Err(own_unknown(request, &error)),
        };
        let literal = own.as_ref().zip(guard::literal(&request.url));
        if let Some((own, address)) = literal
            && own.answers(address).map_err(|error| own_unknown(request, &error))?
        {
            let host = request.url.host_str().unwrap_or_default().to_owned();
            let error = request.blocked(&Blocked { host, why: Why::Own });
            return Err(ToolOutcome::NotSent { error, permanent: true });
        }
        let at_most_once = call.tool.effect == EffectClass::AtMostOnce;
        if !at_most_once && own.is_none() {
            return Ok(self.shared.clone());
        }
        let connect = if at_most_once { call.timeout / 4 * 3 } else { call.timeout };
        let resolver = GuardedResolver { guard: self.guard.clone(), lookup: Arc::clone(&self.lookup), own };
        let built = client_builder().and_then(|builder| {
            let builder = builder.dns_resolver(Arc::new(resolver)).pool_max_idle_per_host(0);
            let built = builder.connect_timeout(connect.min(CONNECT_TIME_MAX)).build();
            built.map_err(|error| BuildError::Client(error.to_string()))
        });
        built.or_else(|error| not_sent("http_client", &error.to_string()))
    }
}

/// Nothing is called while it is not known where this store's own servers listen; it is nobody's try.
fn own_unknown(request: &Prepared, error: &std::io::Error) -> ToolOutcome {
    let code = if is_out_of_files(error) { OUT_OF_FILES } else { OWN_ADDRESSES_UNKNOWN };
    let what = format!("was not sent: the addresses of this store's servers cannot be read: {error}");
    ToolOutcome::NotSent { error: request.failure(code, &what), permanent: false }
}

/// The methods that tools may use.
fn method(name: &str) -> Option<Method> {
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE]
        .into_iter()
        .find(|method| method.as_str().eq_ignore_ascii_case(name))
}
