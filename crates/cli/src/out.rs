//! Where output goes. Results go to stdout, everything said about them to stderr.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::error::Error;
use crate::render::Style;

type Sink = Arc<Mutex<Box<dyn Write + Send>>>;

/// The program's two outputs and how they look.
#[derive(Clone)]
pub struct Out {
    stdout: Sink,
    stderr: Sink,
    /// Whether one JSON value is wanted instead of text.
    pub json: bool,
    /// Whether stdout is a terminal, where lines can be drawn again.
    pub live: bool,
    /// How text is coloured.
    pub style: Style,
}

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Out").field("json", &self.json).field("live", &self.live).finish_non_exhaustive()
    }
}

impl Out {
    /// The process's own outputs.
    #[must_use]
    pub fn of_process(json: bool, live: bool, style: Style) -> Self {
        Self::to(Box::new(std::io::stdout()), Box::new(std::io::stderr()), json, live, style)
    }

    /// Outputs that go elsewhere.
    #[must_use]
    pub fn to(
        stdout: Box<dyn Write + Send>,
        stderr: Box<dyn Write + Send>,
        json: bool,
        live: bool,
        style: Style,
    ) -> Self {
        Self { stdout: Arc::new(Mutex::new(stdout)), stderr: Arc::new(Mutex::new(stderr)), json, live, style }
    }

    /// Writes text to stdout as it is.
    ///
    /// # Errors
    /// [`Error::OutputClosed`] where nobody reads any more.
    pub fn text(&self, text: &str) -> Result<(), Error> {
        let mut sink = self.stdout.lock().unwrap_or_else(PoisonError::into_inner);
        sink.write_all(text.as_bytes())?;
        sink.flush()?;
        Ok(())
    }

    /// Writes a line to stdout.
    ///
    /// # Errors
    /// [`Error::OutputClosed`] where nobody reads any more.
    pub fn line(&self, line: &str) -> Result<(), Error> {
        self.text(&format!("{line}\n"))
    }

    /// Writes the one JSON value of `--json` to stdout.
    ///
    /// # Errors
    /// [`Error::OutputClosed`] where nobody reads any more.
    pub fn value(&self, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
        self.line(&text)
    }

    /// Says something on stderr; if nobody listens, nothing is lost.
    pub fn note(&self, line: &str) {
        let mut sink = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let _unheard = sink.write_all(format!("{line}\n").as_bytes()).and_then(|()| sink.flush());
    }
}
