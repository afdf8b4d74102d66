//! Where output goes. Results go to stdout, everything said about them to stderr.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::config::{stderr_is_terminal, stdout_size};
use crate::error::Error;
use crate::render::{Style, Tone, cut, safe};

/// Columns and rows of a terminal, asked now.
type SizeNow = fn() -> Option<(usize, usize)>;
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
    /// How text on stdout looks.
    pub style: Style,
    /// How text on stderr looks: the one may be a terminal, the other a file.
    pub style_aside: Style,
    /// Whether somebody sees stderr while the command works.
    pub watched: bool,
    /// Columns and rows of the terminal now, where that can change.
    size: Option<SizeNow>,
}

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Out").field("json", &self.json).field("live", &self.live).finish_non_exhaustive()
    }
}

impl Out {
    /// The process's own outputs.
    #[must_use]
    pub fn of_process(json: bool, live: bool, styles: [Style; 2]) -> Self {
        let out = Self::to(Box::new(std::io::stdout()), Box::new(std::io::stderr()), json, live, styles);
        Self { watched: stderr_is_terminal(), size: Some(stdout_size), ..out }
    }

    /// Outputs that go elsewhere; the styles are those of stdout and of stderr.
    #[must_use]
    pub fn to(
        stdout: Box<dyn Write + Send>,
        stderr: Box<dyn Write + Send>,
        json: bool,
        live: bool,
        [style, style_aside]: [Style; 2],
    ) -> Self {
        let (stdout, stderr) = (Arc::new(Mutex::new(stdout)), Arc::new(Mutex::new(stderr)));
        Self { stdout, stderr, json, live, style, style_aside, watched: false, size: None }
    }

    /// How text looks at this moment: whoever draws again asks again, as a terminal changes its size.
    #[must_use]
    pub fn style_now(&self) -> Style {
        match self.size.filter(|_| self.style.columns.is_some()) {
            Some(size) => Style { columns: size().map(|(columns, _)| columns), ..self.style },
            None => self.style,
        }
    }

    /// Rows of the terminal at this moment.
    #[must_use]
    pub fn rows_now(&self) -> Option<usize> {
        self.size.and_then(|size| size()).map(|(_, rows)| rows)
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
        self.line(&safe::json(&text))
    }

    /// Writes one JSON value of several, on a line of its own.
    ///
    /// # Errors
    /// [`Error::OutputClosed`] where nobody reads any more.
    pub fn json_line(&self, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(value).map_err(anyhow::Error::from)?;
        self.line(&safe::json(&text))
    }

    /// Says something on stderr, whatever was written into it by others; if nobody listens, nothing is lost.
    pub fn note(&self, line: &str) {
        self.say(&safe::lines(line));
    }

    /// Shows on stderr what a renderer has made in [`Self::style_aside`], whose parts are clean: its colours stay.
    pub fn aside(&self, rendered: &str) {
        self.say(rendered.trim_end());
    }

    /// Says something that is not to be overlooked.
    pub fn warn(&self, line: &str) {
        self.say(&self.style_aside.paint(Tone::Attention, &safe::lines(line)));
    }

    /// Says why the command has failed.
    pub fn error(&self, why: &str) {
        let head = if self.style_aside.color { "\u{1b}[31merror\u{1b}[0m" } else { "error" };
        self.say(&format!("{head}: {}", safe::lines(why)));
    }

    fn say(&self, line: &str) {
        let mut sink = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let _unheard = sink.write_all(format!("{line}\n").as_bytes()).and_then(|()| sink.flush());
    }

    /// Draws the one line of progress on stderr, over the one before; nothing of it is left by an empty one.
    pub fn progress(&self, line: &str) {
        if self.watched {
            let mut sink = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
            let line = cut(line, self.style_now().columns.unwrap_or(80).saturating_sub(1));
            let _unheard = sink.write_all(format!("\r{line}\u{1b}[K").as_bytes()).and_then(|()| sink.flush());
        }
    }
}
