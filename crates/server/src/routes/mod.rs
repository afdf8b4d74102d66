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
use axum::routing::{any, get, post};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::Failure;
use crate::host;
use crate::state::{App, AppState, Shared};

#[derive(OpenApi)]
#[openapi(
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

/// The calls of later builds: they are named, so that a client is told instead of left to guess.
const NOT_YET: [(&str, &str); 4] = [
    ("/api/jobs/{id}/retry", "retry"),
    ("/api/jobs/{id}/replan", "replan"),
    ("/api/jobs/{id}/fork", "fork"),
    ("/metrics", "metrics"),
];

fn documented() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(agents::list))
        .routes(routes!(agents::get, agents::put, agents::delete))
        .routes(routes!(messages::send))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::get))
        .routes(routes!(events::page))
        .routes(routes!(events::stream))
        .routes(routes!(evidence::replay))
        .routes(routes!(evidence::verify))
        .routes(routes!(evidence::trace))
        .routes(routes!(steps::list))
        .routes(routes!(steps::why))
        .routes(routes!(acts::signal))
        .routes(routes!(acts::cancel))
        .routes(routes!(acts::pause))
        .routes(routes!(acts::resume))
        .routes(routes!(acts::resolve))
        .routes(routes!(waits::list))
        .routes(routes!(waits::in_doubt))
        .routes(routes!(system::live))
        .routes(routes!(system::ready))
        .routes(routes!(system::openapi))
        .routes(routes!(system::agent_schema))
}

/// The server's calls.
pub fn router(state: AppState) -> Router {
    let (mut router, document) = documented().split_for_parts();
    let app = App::new(state);
    app.openapi.get_or_init(|| bytes(&document));
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

/// The OpenAPI document of the calls, as the server gives it.
#[must_use]
pub fn openapi() -> Vec<u8> {
    bytes(&documented().into_openapi()).to_vec()
}

fn bytes(document: &utoipa::openapi::OpenApi) -> axum::body::Bytes {
    let mut text = serde_json::to_vec_pretty(document).unwrap_or_default();
    text.push(b'\n');
    text.into()
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
