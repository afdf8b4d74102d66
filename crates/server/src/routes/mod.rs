//! Every call of the interface. The router and the OpenAPI document are made of the same list.

mod acts;
mod agents;
mod answers;
mod events;
mod evidence;
mod jobs;
mod messages;
mod steps;
mod system;
mod waits;

use aetheris_api::{ErrorCode, Problem};
use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::{MethodFilter, any, get, on, post};
use utoipa::openapi::HttpMethod;
use utoipa::{OpenApi, Path};

use crate::error::Failure;
use crate::host;
use crate::state::{App, AppState, Shared};

/// The calls of later builds: they are named, so that a client is told instead of left to guess.
const NOT_YET: [(&str, &str); 4] = [
    ("/api/jobs/{id}/retry", "retry"),
    ("/api/jobs/{id}/replan", "replan"),
    ("/api/jobs/{id}/fork", "fork"),
    ("/metrics", "metrics"),
];

/// Makes of one list of calls the router of the server and the document that describes it. The document is made by its
/// test alone: a server gives the file that was checked in, and carries no code that would make it.
macro_rules! calls {
    ($($room:ident: $($call:ident = $path:ident),+;)+) => {
        fn calls() -> Router<Shared> {
            let router = Router::new();
            $($(
                let filter = methods(&<$room::$path as Path>::methods());
                let router = router.route(&<$room::$path as Path>::path(), on(filter, $room::$call));
            )+)+
            router
        }

        #[derive(OpenApi)]
        #[openapi(
            paths($($($room::$call),+),+),
            info(
                title = "Aetheris",
                description = "A durable execution runtime for AI agents. Errors are problem details (RFC 9457) \
                               with a stable `code`; unknown fields of requests are refused by name; answers may \
                               gain fields. This build asks nobody who he is: whoever reaches the server may do \
                               everything. It listens on loopback by default, and there it answers to its own names only.",
                license(name = "Apache-2.0", identifier = "Apache-2.0"),
            ),
            servers((url = "/", description = "The server that this document came from; http://127.0.0.1:8080 by default")),
            security(()),
            components(schemas(Problem, aetheris_api::events::AnyEvent)),
            tags(
                (name = "agents", description = "Named profiles that say how messages become plans"),
                (name = "jobs", description = "Messages being worked on"),
                (name = "evidence", description = "What happened, and whether it still adds up"),
                (name = "people", description = "What waits for someone"),
                (name = "system", description = "The server itself"),
            )
        )]
        struct Document;
    };
}

// What `#[utoipa::path]` knows of a call is called so.
calls! {
    agents: list = __path_list, get = __path_get, put = __path_put, delete = __path_delete;
    messages: send = __path_send;
    jobs: list = __path_list, get = __path_get, children = __path_children;
    events: page = __path_page, stream = __path_stream;
    evidence: replay = __path_replay, verify = __path_verify, trace = __path_trace;
    steps: list = __path_list, why = __path_why;
    acts: signal = __path_signal, cancel = __path_cancel, pause = __path_pause, resume = __path_resume, resolve = __path_resolve;
    waits: list = __path_list, in_doubt = __path_in_doubt;
    system: live = __path_live, ready = __path_ready, openapi = __path_openapi, agent_schema = __path_agent_schema,
    plan_schema = __path_plan_schema;
}

/// The server's calls.
pub fn router(state: AppState) -> Router {
    let mut router = calls();
    let app = App::new(state);
    for (path, call) in NOT_YET {
        let answer = move || std::future::ready(not_yet(call));
        let method = if path.starts_with("/api/") { post(answer) } else { get(answer) };
        router = router.route(path, method);
    }
    router
        .route("/", get(system::front))
        .route_layer(axum::middleware::from_fn_with_state(Shared::clone(&app), host::check))
        .fallback(any(not_found))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

/// The OpenAPI document of the calls, made of the code: what `openapi.json` has to be.
#[must_use]
pub fn openapi() -> String {
    let mut text = serde_json::to_string_pretty(&Document::openapi()).unwrap_or_default();
    text.push('\n');
    text
}

fn methods(of: &[HttpMethod]) -> MethodFilter {
    let mut filters = of.iter().map(|method| match method {
        HttpMethod::Get => MethodFilter::GET,
        HttpMethod::Put => MethodFilter::PUT,
        HttpMethod::Post => MethodFilter::POST,
        HttpMethod::Head => MethodFilter::HEAD,
        HttpMethod::Patch => MethodFilter::PATCH,
        HttpMethod::Trace => MethodFilter::TRACE,
        HttpMethod::Delete => MethodFilter::DELETE,
        HttpMethod::Options => MethodFilter::OPTIONS,
    });
    let first = filters.next().unwrap_or(MethodFilter::GET);
    filters.fold(first, MethodFilter::or)
}

fn not_yet(call: &str) -> Failure {
    Failure::new(ErrorCode::NotSupportedYet, format!("this version does not have `{call}` yet"))
}

async fn not_found(uri: Uri) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("there is nothing at {}; see /api/openapi.json", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    Failure::new(ErrorCode::MethodNotAllowed, format!("{} does not take {method}; see /api/openapi.json", uri.path()))
}
