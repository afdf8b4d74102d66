//! What the service answers.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::log::{Booking, BookingLog, Wish};
use super::wire::Notice;
use crate::commands::process_control::Tag;

/// The price of every order.
const CENTS: i64 = 4_990;

/// The service's state.
pub(super) struct Service {
    held: watch::Sender<bool>,
    log: Mutex<BookingLog>,
    say: fn(&Notice),
}

impl Service {
    pub(super) fn new(log: BookingLog, say: fn(&Notice)) -> Self {
        Self { held: watch::Sender::new(false), log: Mutex::new(log), say }
    }

    /// Holds answers to refunds back. When it is said, it is so.
    pub(super) fn hold(&self) {
        self.held.send_replace(true);
        (self.say)(&Notice::Holding { held: true });
    }

    /// Lets answers go. It is said before what comes of it can be.
    pub(super) fn release(&self) {
        (self.say)(&Notice::Holding { held: false });
        self.held.send_replace(false);
    }

    fn log(&self) -> std::sync::MutexGuard<'_, BookingLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/orders/{id}", get(order))
        .route("/refunds", post(refund))
        .route("/refunds/lookup", post(lookup))
        .with_state(service)
}

#[derive(Debug, Serialize)]
struct Order {
    cents: i64,
    order: String,
    total: String,
}

async fn order(Path(order): Path<String>) -> Json<Order> {
    let total = format!("{}.{:02} EUR", CENTS / 100, CENTS % 100);
    Json(Order { cents: CENTS, order, total })
}

#[derive(Debug, Deserialize)]
struct RefundRequest {
    cents: i64,
    order: String,
}

/// A refund as its caller sees it: the same to the caller itself and to whoever asks later.
#[derive(Debug, Serialize)]
struct Refund {
    cents: i64,
    order: String,
    refund_id: String,
}

impl Refund {
    fn of(booking: &Booking) -> Self {
        Self { cents: booking.cents, order: booking.order.clone(), refund_id: booking.refund_id.clone() }
    }
}

/// Books, tells, and answers when answers are not held back. If the caller goes away meanwhile, the
/// booking stands.
async fn refund(
    State(service): State<Arc<Service>>,
    ConnectInfo(tag): ConnectInfo<Tag>,
    headers: HeaderMap,
    Json(request): Json<RefundRequest>,
) -> Result<Json<Refund>, StatusCode> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let wish = Wish {
        attempt: header("aetheris-attempt"),
        cents: request.cents,
        fence: header("aetheris-fence"),
        idempotency_key: header("idempotency-key"),
        order: request.order,
        permit: header("aetheris-permit"),
    };
    let booked_by = Arc::clone(&service);
    let booked = tokio::task::spawn_blocking(move || booked_by.log().book(wish)).await;
    let booking = booked.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?.map_err(|error| {
        tracing::error!(%error, "a booking could not be written");
        StatusCode::INTERNAL_SERVER_ERROR
    })?;
    let booking = booking.ok_or(StatusCode::GONE)?;
    let refund = Refund::of(&booking);
    tag.watched();
    let mut held = service.held.subscribe();
    (service.say)(&Notice::Booked { booking, connection: tag.number() });
    let _released = held.wait_for(|held| !*held).await;
    Ok(Json(refund))
}

/// What is known of a key.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Outcome {
    Happened { result: Refund },
    DidNotHappen,
}

/// What the runtime asks about a call.
#[derive(Debug, Deserialize)]
struct Question {
    idempotency_key: String,
    permit: String,
}

/// "Did not happen" is a promise here: the permit is refused before that is said.
async fn lookup(
    State(service): State<Arc<Service>>,
    Json(question): Json<Question>,
) -> Result<Json<Outcome>, StatusCode> {
    let asked = Arc::clone(&service);
    let looked = tokio::task::spawn_blocking(move || {
        let mut log = asked.log();
        let booking = log.look_and_refuse(&question.idempotency_key, &question.permit)?;
        Ok::<_, std::io::Error>(booking.map(Refund::of))
    });
    let looked = looked.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let refund = looked.map_err(|error| {
        tracing::error!(%error, "a refusal could not be written");
        StatusCode::INTERNAL_SERVER_ERROR
    })?;
    Ok(Json(refund.map_or(Outcome::DidNotHappen, |result| Outcome::Happened { result })))
}
