//! What is left of a request's body when its answer is known without it.
//!
//! A connection that is closed while its client still sends is reset, and the client loses the answer that says why.
//! So the rest is taken and thrown away for a moment.

use std::pin::Pin;
use std::task::{Context, Poll};

use aetheris_core::limits;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

/// A request's body whose rest is thrown away when nobody wants it.
pub(crate) struct Lingering {
    body: Option<Body>,
    over: CancellationToken,
}

impl Lingering {
    /// A client that waits to be asked for its body is not to be asked for one that nobody wants.
    pub(crate) fn around(headers: &HeaderMap, body: Body, over: &CancellationToken) -> Body {
        if headers.contains_key(header::EXPECT) {
            return body;
        }
        Body::new(Self { body: Some(body), over: over.clone() })
    }
}

impl HttpBody for Lingering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(body) = self.body.as_mut() else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(throw_away(body.into_data_stream(), self.over.clone()));
        }
    }
}

/// Ends by itself: at the body's end, after a time, or with the server.
async fn throw_away(mut rest: BodyDataStream, over: CancellationToken) {
    let mut bytes = 0;
    let all = async {
        while let Some(Ok(chunk)) = rest.next().await {
            bytes += chunk.len();
            if bytes > limits::BODY_REST_BYTES_MAX {
                return;
            }
        }
    };
    tokio::select! {
        () = all => {}
        () = tokio::time::sleep(limits::BODY_REST_TIME_MAX.to_std()) => {}
        () = over.cancelled() => {}
    }
}
