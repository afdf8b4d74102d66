//! Connections: accepted, bounded, and ended in good order.
//!
//! The framework's own accept loop sets no timer, so that a client that never finishes its headers
//! keeps its connection for ever. This one gives headers, and the silence between two requests, ten
//! seconds; a body thirty ([`crate::routes`]); an answer that is not taken thirty (`wire`); and it serves a bounded
//! number of connections at once.
//!
//! A request is worked on in a task of its own. When its client goes away, what waits for the client's
//! sake ends ([`crate::follow`]); what writes goes on.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use aetheris_api::ErrorCode;
use aetheris_core::limits;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::error::Failure;
use crate::linger::Lingering;
use crate::params::Gone;
use crate::routes;
use crate::state::AppState;
use crate::wire::{self, Wire};

/// How a server is told to end, in two steps.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    /// The process drains: the server is not ready, begins no work, ends long polls and event streams, and answers
    /// everything else. A supervisor that asks whether the process lives must not take a drain for a death.
    pub draining: CancellationToken,
    /// The drain is over: nothing is accepted any more.
    pub over: CancellationToken,
}

/// Serves until `ending.over` is cancelled. Then nothing new is accepted and requests under way are answered. How long
/// that takes is the requests' affair and not that of clients who dawdle: what has not arrived by then is refused or cut
/// off within seconds.
///
/// # Errors
/// None today: a failed accept is tried again.
pub async fn serve(listener: TcpListener, mut state: AppState, ending: Ending) -> io::Result<()> {
    state.closing = ending.draining.clone();
    let places = Arc::new(Semaphore::new(state.connections_max.min(Semaphore::MAX_PERMITS)));
    let router = routes::router(state);
    let (connections, requests) = (TaskTracker::new(), TaskTracker::new());
    while let Some(stream) = accept(&listener, &ending.over).await {
        let Some(place) = ending.over.run_until_cancelled(Arc::clone(&places).acquire_owned()).await else {
            break;
        };
        let (router, ending, requests) = (router.clone(), ending.clone(), requests.clone());
        connections.spawn(async move {
            connection(stream, router, &ending, requests).await;
            drop(place);
        });
    }
    // Whoever ends it at once, without a drain before, ends what follows as well.
    ending.draining.cancel();
    drop(listener);
    connections.close();
    requests.close();
    drain(&connections, &requests).await;
    Ok(())
}

/// The next connection; `None` at the end.
async fn accept(listener: &TcpListener, over: &CancellationToken) -> Option<TcpStream> {
    loop {
        match over.run_until_cancelled(listener.accept()).await? {
            Ok((stream, _)) => return Some(stream),
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                over.run_until_cancelled(tokio::time::sleep(limits::ACCEPT_PAUSE.to_std())).await?;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router, ending: &Ending, requests: TaskTracker) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let over = ending.over.clone();
    let service =
        hyper::service::service_fn(move |request| answer(router.clone(), requests.clone(), over.clone(), request));
    // One that comes during the drain has one answer; those that stood before are closed when theirs is given.
    let (one_answer, end) = match ending.draining.is_cancelled() {
        true => (true, &ending.over),
        false => (false, &ending.draining),
    };
    let mut http = http1::Builder::new();
    http.keep_alive(!one_answer);
    http.timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_TIME_MAX.to_std())
        .max_buf_size(limits::HEAD_BYTES_MAX);
    let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(Wire::new(stream)), service));
    tokio::select! {
        // A connection that breaks is its client's affair.
        _ = serving.as_mut() => return,
        () = end.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// Works on one request in a task of its own. Dropping this, as when the client is gone, leaves the
/// task to its end.
async fn answer(
    router: Router,
    requests: TaskTracker,
    over: CancellationToken,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let client = CancellationToken::new();
    let (parts, body) = request.into_parts();
    let body = Lingering::around(&parts.headers, Body::new(body), &over);
    let mut request = Request::from_parts(parts, body);
    if request.uri().path_and_query().is_some_and(|asked| asked.as_str().len() > limits::URI_BYTES_MAX) {
        return Ok(Failure::from(wire::uri_too_long()).into_response());
    }
    request.extensions_mut().insert(Gone(client.clone()));
    let _until_here = client.drop_guard();
    match requests.spawn(router.oneshot(request)).await {
        Ok(answer) => answer,
        Err(_) => Ok(Failure::new(ErrorCode::Internal, "the request could not be worked on").into_response()),
    }
}

#[expect(clippy::disallowed_methods, reason = "bounds the wait for tasks, which go on by themselves")]
async fn drain(connections: &TaskTracker, requests: &TaskTracker) {
    let worked = tokio::time::timeout(limits::SERVER_DRAIN_MAX.to_std(), requests.wait()).await.is_ok();
    let read = tokio::time::timeout(limits::SERVER_LAST_WORDS_MAX.to_std(), connections.wait()).await.is_ok();
    // What arrived in those last moments was worked on as well.
    let last = tokio::time::timeout(limits::SERVER_LAST_WORDS_MAX.to_std(), requests.wait()).await.is_ok();
    if !(worked && read && last) {
        tracing::warn!(
            connections = connections.len(),
            requests = requests.len(),
            "clients are left that did not finish their requests or did not read their answers"
        );
    }
}
