//! The one place that reads the environment.

use std::io::IsTerminal;

use super::Secret;

/// The beginning of variables that set keys: `AETHERIS__WORKER__SLOTS=4`.
pub(super) const PREFIX: &str = "AETHERIS__";

/// What the program takes from its environment.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    vars: Vec<(String, String)>,
}

impl Environment {
    /// The environment of this process. Variables that are not UTF-8 are left out.
    #[must_use]
    pub fn of_process() -> Self {
        let vars = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { vars }
    }

    /// An environment of these variables.
    #[must_use]
    pub fn of(vars: &[(&str, &str)]) -> Self {
        Self { vars: vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect() }
    }

    /// The value of a variable, unless it is empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.vars.iter().find(|(var, value)| var == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// The variables that set keys: the variable, the key's path, and the text.
    pub(super) fn settings(&self) -> Vec<(&str, Vec<String>, &str)> {
        let mut found: Vec<(&str, Vec<String>, &str)> = self
            .vars
            .iter()
            .filter_map(|(name, text)| {
                let path = name.strip_prefix(PREFIX)?.split("__").map(str::to_ascii_lowercase).collect();
                Some((name.as_str(), path, text.as_str()))
            })
            .collect();
        found.sort_unstable_by(|a, b| a.0.cmp(b.0));
        found
    }

    /// The secret that a reference names.
    ///
    /// # Errors
    /// Text that says which variable or file is missing; never the secret.
    pub fn secret(&self, secret: &Secret) -> Result<String, String> {
        match secret {
            Secret::Env(name) => self.get(name).map(str::to_owned).ok_or_else(|| {
                format!("the environment variable {name} is not set: the configuration reads a key from it")
            }),
            Secret::File(path) => match std::fs::read_to_string(path) {
                Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
                Ok(_) => Err(format!("{} is empty: the configuration reads a key from it", path.display())),
                Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
            },
        }
    }

    /// Whether colour is unwanted or senseless here: `NO_COLOR` is set, or the terminal is a dumb one.
    #[must_use]
    pub fn no_color(&self) -> bool {
        self.get("NO_COLOR").is_some() || self.get("TERM") == Some("dumb")
    }
}

/// Columns and rows of the terminal that stdout is, as they are now.
#[must_use]
pub fn stdout_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Whether stderr is a terminal.
#[must_use]
pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Whether stdout is a terminal.
#[must_use]
pub fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}
