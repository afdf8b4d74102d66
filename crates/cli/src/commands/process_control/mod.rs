//! What `demo` and `prove` do to this program from outside: they start it as processes of its own, stop and
//! kill them, hold its database's lock and watch connections. Nothing in the runtime knows of it.

mod child;
mod connection;
mod fault;
mod folder;
mod lock;
mod process;

use aetheris_api::EventView;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

pub use self::child::ChildArgs;
pub(in crate::commands) use self::child::run as run_child;
pub(in crate::commands) use self::connection::{Ended, Tag, Watched};
pub(in crate::commands) use self::fault::Fault;
pub(in crate::commands) use self::folder::{Folder, ParentFolder};
pub(in crate::commands) use self::lock::WriteLock;
pub(in crate::commands) use self::process::{Process, Surroundings, within, within_of};
use crate::error::Error;
use crate::exit::Exit;

/// What an event says.
pub(in crate::commands) fn said(event: &EventView) -> Value {
    serde_json::from_str(event.payload.text()).unwrap_or_default()
}

/// Returns when the terminal or the system asks to stop. It is heard from the call on, not from the first wait.
pub(in crate::commands) fn asked_to_stop() -> impl Future<Output = Error> + Send {
    let asked = || -> std::io::Result<_> {
        Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?))
    };
    let asked = asked();
    async move {
        let (mut interrupt, mut terminate, mut hangup) = match asked {
            Ok(asked) => asked,
            Err(error) => return Error::Internal(error.into()),
        };
        let exit = tokio::select! {
            _ = interrupt.recv() => Exit::Interrupted,
            _ = terminate.recv() => Exit::Failed,
            _ = hangup.recv() => Exit::Failed,
        };
        Error::Other { message: "stopped; everything that was started is killed".to_owned(), exit }
    }
}
