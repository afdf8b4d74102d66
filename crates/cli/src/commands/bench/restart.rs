//! kill -9 of `dev` with 200 jobs in flight, restarted on the same folder: how long until all of them
//! move, and how many ledger-guarded bodies ran twice, by the tool's own count.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use tokio::net::TcpListener;

use super::child::{Connection, Dev};
use super::world::now;
use super::{Goal, Plan, Rows};
use crate::error::Error;

const JOBS: usize = 200;

/// Bodies by job, each with the keys it was called with: the tool's own books.
#[derive(Debug, Default)]
struct Books {
    bodies: BTreeMap<String, Vec<String>>,
}

type Shared = Arc<Mutex<Books>>;

async fn body(State(books): State<Shared>, headers: HeaderMap) -> axum::Json<serde_json::Value> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (job, key) = (text("aetheris-job"), text("idempotency-key"));
    books.lock().unwrap_or_else(PoisonError::into_inner).bodies.entry(job).or_default().push(key);
    tokio::time::sleep(Duration::from_millis(50)).await;
    axum::Json(serde_json::json!({ "ok": true }))
}

fn agent(address: std::net::SocketAddr) -> String {
    let mut file = format!(
        "agent: moving\nversion: \"1\"\nplanner: static\ntools:\n  act: {{ kind: http, effect: at_most_once, method: POST, url: \"http://{address}/\", timeout: 5s, on_in_doubt: human }}\nplan:\n  nodes:\n"
    );
    for n in 0..40 {
        let needs = if n == 0 { String::new() } else { format!(", needs: [s{}]", n - 1) };
        file.push_str(&format!("    - {{ id: s{n}, kind: tool, tool: act{needs} }}\n"));
    }
    file
}

/// Measures.
pub(crate) async fn measure(plan: &Plan, rows: &mut Rows) -> Result<(), Error> {
    let folder = plan.place.folder("restart")?;
    let books = Shared::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(anyhow::Error::from)?;
    let address = listener.local_addr().map_err(anyhow::Error::from)?;
    let router = Router::new().route("/", post(body)).with_state(Arc::clone(&books));
    let tool = tokio::spawn(async move { axum::serve(listener, router).await });
    let file = folder.join("moving.yaml");
    std::fs::write(&file, agent(address)).map_err(anyhow::Error::from)?;
    let measured = killed_and_restarted(&folder, &file, &books).await;
    tool.abort();
    let (seconds, twice, bodies) = measured?;
    let detail = format!(
        "{JOBS} jobs in flight at the kill; from the start of the new process until every job has moved or asks a person about its call"
    );
    rows.add("restart after kill -9, all moving", (seconds, "s"), Goal::AtMost(1.0), detail);
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    rows.add(
        "ledger bodies run twice",
        (twice as f64, "bodies"),
        Goal::AtMost(0.0),
        format!("of {bodies}, by the tool's own count"),
    );
    Ok(())
}

async fn killed_and_restarted(folder: &Path, file: &Path, books: &Shared) -> Result<(f64, usize, usize), Error> {
    let dev = Dev::start(folder, Some(file), JOBS).await?;
    let mut connection = Connection::open(dev.address).await?;
    for _ in 0..JOBS {
        let (status, body) = connection.call("POST", "/api/agents/moving/message", "{\"message\":null}").await?;
        if status != 202 {
            return Err(Error::Internal(anyhow::anyhow!(
                "a job was not accepted: {status} {}",
                String::from_utf8_lossy(&body)
            )));
        }
    }
    until(|| books.lock().unwrap_or_else(PoisonError::into_inner).bodies.len() == JOBS).await?;
    dev.kill().await?;
    let start = now();
    let dev = Dev::start(folder, None, JOBS).await?;
    let mut connection = Connection::open(dev.address).await?;
    // A call that was in flight is in doubt now and parks for a person; no job stays as it was.
    loop {
        let (_, body) = connection.call("GET", "/api/jobs?status=pending,running&limit=500", "").await?;
        let page: serde_json::Value = serde_json::from_slice(&body).map_err(anyhow::Error::from)?;
        let jobs = page["jobs"].as_array().map_or(&[][..], Vec::as_slice);
        let unmoved = jobs.iter().filter(|job| job["epoch"].as_u64() == Some(1)).count();
        if unmoved == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let seconds = (now() - start).as_secs_f64();
    dev.kill().await?;
    let books = books.lock().unwrap_or_else(PoisonError::into_inner);
    let bodies = books.bodies.values().map(Vec::len).sum();
    let twice = books
        .bodies
        .values()
        .map(|keys| keys.len() - keys.iter().collect::<std::collections::BTreeSet<_>>().len())
        .sum();
    Ok((seconds, twice, bodies))
}

async fn until(condition: impl Fn() -> bool) -> Result<(), Error> {
    for _ in 0..10_000 {
        if condition() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Err(Error::Internal(anyhow::anyhow!("the jobs did not all start within 20 s")))
}
