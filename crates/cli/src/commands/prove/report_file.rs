//! The file that a report goes to: it takes the place of an older report, and of no other file.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::report;
use crate::error::Error;

/// What `--report` names.
pub(super) struct ReportFile<'a>(pub(super) &'a Path);

impl ReportFile<'_> {
    /// Looks whether a report can be written there: nobody wants to learn of it after minutes. Leaves nothing.
    ///
    /// # Errors
    /// It cannot be, or something else is there.
    pub(super) fn check(&self) -> Result<(), Error> {
        let told =
            |error: io::Error| Error::Usage(format!("--report: {} cannot be written: {error}", self.0.display()));
        if self.0.symlink_metadata().is_err() {
            File::options().write(true).create_new(true).open(self.0).map_err(told)?;
            return fs::remove_file(self.0).map_err(told);
        }
        // A link that leads nowhere is no file that can be opened.
        File::options().append(true).open(self.0).map_err(told)?;
        if self.is_report().map_err(told)? {
            return Ok(());
        }
        let what = "is there and is no report of `prove`: name another file";
        Err(Error::Usage(format!("--report: {} {what}", self.0.display())))
    }

    /// Whether what is there may be replaced: a report, an empty file, or what is no file on a disk.
    fn is_report(&self) -> io::Result<bool> {
        let mut first = Vec::new();
        if self.0.is_file() {
            File::open(self.0)?.take(report::TITLE.len() as u64 + 1).read_to_end(&mut first)?;
        }
        Ok(first.is_empty() || first == format!("{}\n", report::TITLE).as_bytes())
    }

    /// Writes the report, whole or not at all. What has come there meanwhile stays.
    ///
    /// # Errors
    /// As [`ReportFile::check`].
    pub(super) fn write(&self, text: &str) -> Result<(), Error> {
        self.check()?;
        let failed = |error: io::Error| anyhow::anyhow!("{} cannot be written: {error}", self.0.display());
        let place = self.0.canonicalize().unwrap_or_else(|_| self.0.to_owned());
        if place.exists() && !place.is_file() {
            return Ok(fs::write(&place, text).map_err(failed)?);
        }
        let mut part = place.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        // A file of that name is somebody's, too.
        let mut file = File::options().write(true).create_new(true).open(&part).map_err(failed)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&part, &place));
        written.map_err(|error| {
            let _absent = fs::remove_file(&part);
            failed(error).into()
        })
    }
}
