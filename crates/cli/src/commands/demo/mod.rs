//! `aetheris demo`: the refund story, with a real kill -9.
//!
//! Three acts on the same refund. In each a separate payments service books the refund, the process that
//! called it is killed or stopped before the outcome is recorded, and another one finishes the job. The
//! service books every call that reaches it, so its own log is the proof: one refund, one booking.
//!
//! Reading order: `acts`, `refund` (the job), `stage` (who plays), `payments` (the outside world),
//! `finding` (what is checked), `report`. Processes and locks are in `process_control`.

mod acts;
mod finding;
mod payments;
mod refund;
mod report;
mod stage;
mod story;

use std::path::Path;

use serde_json::{Value, json};

pub use self::payments::{PaymentsArgs, run as run_payments};

use self::acts::Act;
use self::finding::Finding;
use self::report::{Control, Report};
use self::stage::Stage;
use self::story::Story;
use super::process_control::{Fault, Folder, asked_to_stop};
use crate::args::Demo;
use crate::client::Client;
use crate::error::Error;
use crate::exit::Exit;
use crate::out::Out;
use crate::render::Tone;

/// Plays the acts and says what they proved. Exit 6 where something is not as claimed.
///
/// # Errors
/// The stage cannot be set, or someone asks to stop. What was started is killed either way.
pub async fn run(args: &Demo, out: &Out) -> Result<Exit, Error> {
    let place = std::env::temp_dir();
    let mut folder = Folder::make_in(&place, "aetheris-demo").map_err(|error| {
        let place = place.display();
        anyhow::anyhow!("no folder can be made in {place}: {error}; TMPDIR names another place for it")
    })?;
    let program = std::env::current_exe().map_err(anyhow::Error::from)?;
    let story = Story::begin(out);
    let played = tokio::select! {
        played = perform(&program, folder.path(), &story) => played,
        stopped = asked_to_stop() => return Err(stopped),
    };
    let mut report = match played {
        Ok(report) => report,
        Err(fault) => {
            folder.keep();
            return Err(not_as_claimed(&fault.to_string(), folder.path()));
        }
    };
    if args.keep || !report.as_claimed {
        folder.keep();
        report.folder = Some(folder.path().display().to_string());
    }
    finish(&report, &story, out)
}

fn finish(report: &Report, story: &Story, out: &Out) -> Result<Exit, Error> {
    report.tell(story);
    if out.json {
        out.value(report)?;
    }
    let seconds = f64::from(u32::try_from(report.elapsed_ms).unwrap_or(u32::MAX)) / 1_000.0;
    if report.as_claimed {
        let all = format!("Each refund was booked once, and each job says how it knows. All in {seconds:.1} s.");
        story.line(&story.paint(Tone::Good, &all));
    }
    if let Some(folder) = &report.folder {
        story.line(&format!("Databases and logs are kept in {folder}"));
    }
    if report.as_claimed {
        return Ok(Exit::Done);
    }
    out.note("not as claimed: see the acts above");
    Ok(Exit::CheckFailed)
}

fn not_as_claimed(what: &str, folder: &Path) -> Error {
    let message = format!("not as claimed: {what}\ndatabases and logs are kept in {}", folder.display());
    Error::Other { message, exit: Exit::CheckFailed }
}

async fn perform(program: &Path, folder: &Path, story: &Story) -> Result<Report, Fault> {
    story.line(&story.paint(Tone::Strong, "A refund must not be sent twice. Three ways to lose track of one:"));
    let control = control(program, folder, story).await?;
    let mut acts = Vec::new();
    for act in Act::ALL {
        story.act(act.title());
        let stage = Stage::set(folder, &format!("act-{}", act.number()), program, story)?;
        let finding = act.play(&stage).await.unwrap_or_else(|fault| Finding::broken(act, &fault));
        finding.tell(act, story);
        acts.push(finding);
    }
    let as_claimed = control.bookings == control.calls && acts.iter().all(|finding| finding.differs.is_empty());
    Ok(Report { acts, as_claimed, control, elapsed_ms: story.elapsed_ms(), folder: None })
}

/// The same call twice, with the same key and no runtime: the service books twice, and its log shows it.
async fn control(program: &Path, folder: &Path, story: &Story) -> Result<Control, Fault> {
    let calls = 2;
    story.act("Before: the payments service books whatever it is sent");
    let stage = Stage::set(folder, "control", program, story)?;
    let payments = stage.payments().await?;
    let client = Client::new(&payments.url).map_err(|error| Fault::api("the payments service's address", error))?;
    for _ in 0..calls {
        let body = json!({ "order": refund::ORDER, "cents": 4_990 });
        let sent = client.post::<Value>(&["refunds"], &body, &[("idempotency-key", "the-same-key")]).await;
        sent.map_err(|error| Fault::api("a refund by hand", error))?;
    }
    let bookings = finding::bookings(&payments.log)?.len();
    story.tell(
        "by hand",
        &format!("{calls} calls with the same idempotency key: {bookings} bookings. A second call would show."),
    );
    Ok(Control { bookings, calls })
}
