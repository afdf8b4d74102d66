//! Answers that calls share, for the document.

use std::collections::BTreeMap;

use aetheris_api::{PROBLEM_JSON, Problem};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident: $($status:literal => $text:literal),+;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                [$(($status, $text)),+].into_iter().map(|(status, text)| (status.to_owned(), problem(text))).collect()
            }
        }
    )*};
}

problems! {
    /// What any call that asks the store may answer.
    Common: "400" => "The request is malformed; `detail` says where",
        "414" => "Path and query are longer than is accepted (`uri_too_long`)",
        "431" => "The headers are larger than is accepted (`headers_too_large`)",
        "500" => "What is stored cannot be read",
        "503" => "The store is not available, as much is under way as the server can hold, or the server is shutting down and begins nothing; \
                  `Retry-After` says when to ask again";
    /// What a call that asks nothing of the store may answer.
    Plain: "400" => "The request asks for a name that is not this server's";
    /// The job of the path does not exist.
    NoJob: "404" => "There is no such job (`job_not_found`)";
    /// The job or invocation of the path does not exist.
    NoInvocation: "404" => "There is no such job (`job_not_found`) or invocation (`invocation_not_found`)";
    /// The agent of the path does not exist.
    NoAgent: "404" => "There is no such agent (`agent_not_found`)";
    /// The state does not allow it.
    Conflict: "409" => "The state does not allow it; `code` says why";
    /// Something is too large.
    TooLarge: "413" => "The body, or a value in it, is larger than is accepted (`payload_too_large`)";
    /// As many as can are being made.
    TooMany: "429" => "As many of these are under way as this server does at once; `Retry-After` says when to ask again (`rate_limited`)";
    /// The agent file has mistakes.
    BadAgent: "422" => "The file has mistakes; `errors` lists all of them with path and line (`invalid_agent`)";
}

fn problem(text: &str) -> RefOr<Response> {
    let schema = RefOr::Ref(Ref::from_schema_name(Problem::name()));
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(text).content(PROBLEM_JSON, content).build().into()
}
