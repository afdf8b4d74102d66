//! `check-consistency`: the invariants, evaluated over a database. Reads only.

use aetheris_check::ClientHistory;
use aetheris_store::system::System;

use super::Context;
use crate::args;
use crate::error::Error;
use crate::exit::Exit;
use crate::wiring;

/// Checks the database of a data folder. It may be in use.
///
/// # Errors
/// There is no database, or it cannot be read.
pub async fn run(given: &args::CheckConsistency, context: &Context) -> Result<Exit, Error> {
    let path = given.data.join("aetheris.db");
    if !path.exists() {
        let message = format!("there is no database {}: name the folder that `dev --data` was given", path.display());
        return Err(Error::Other { message, exit: Exit::NotFound });
    }
    let store = wiring::open_sqlite(&path, &System::machine())?;
    let history = ClientHistory::default();
    let report = aetheris_check::check_store(store.as_ref(), &[], &history).await.map_err(anyhow::Error::from)?;
    // A database alone has no witness log and not every kind of case: what is not there cannot be wrong.
    let absent = report.unexamined();
    let report = report.excuse(&absent);
    if context.out.json {
        context.out.value(&report)?;
    } else {
        context.out.text(&report.to_string())?;
    }
    Ok(if report.is_clean() { Exit::Done } else { Exit::CheckFailed })
}
