//! The fields of a log line as people read them. Messages, answers of tools and names come from others: nothing of them
//! begins a line, moves the cursor or shows its letters in another order.

use std::fmt;

use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

use crate::render::safe;

/// Fields on one line, whatever is in them.
#[derive(Debug, Default)]
pub(super) struct OneLine(DefaultFields);

impl<'w> FormatFields<'w> for OneLine {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut text = String::new();
        self.0.format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&safe::escaped(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_others_wrote_forges_no_line_and_controls_no_screen() {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false);
        tracing::subscriber::with_default(lines.fmt_fields(OneLine::default()).finish(), || {
            let reason = "x\n2026-11-22 ERROR the disk failed \u{1b}[31m\u{202e}\r\u{9b}2J";
            tracing::info_span!("run", job = %reason).in_scope(|| tracing::warn!(%reason, "the job {}", reason));
        });
        let log = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.lines().count(), 1, "{log:?}");
        assert!(!log.trim_end().chars().any(|c| c.is_control() || safe::is_format(c)), "{log:?}");
        assert_eq!(log.matches("x\\u000a2026-11-22 ERROR the disk failed \\").count(), 3, "{log}");
    }
}
