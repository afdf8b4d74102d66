//! Exit codes: what scripts may rely on.

use std::process::ExitCode;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done.
    Done,
    /// The job failed or was cancelled (`send --wait`, `watch`); elsewhere, the program itself failed.
    Failed,
    /// The arguments, the configuration or the request cannot be right as they are.
    Usage,
    /// The named agent, job or invocation does not exist.
    NotFound,
    /// The state does not allow it.
    Conflict,
    /// The server does not answer, or cannot serve at the moment.
    Unreachable,
    /// A check found something wrong.
    CheckFailed,
    /// The time of `--timeout` is over and the job still goes on.
    StillRunning,
    /// A part of a server process, without which it can do nothing, stopped unexpectedly, and the process with it.
    Died,
    /// Ctrl-C, by the shells' convention.
    Interrupted,
}

impl Exit {
    /// Every code, in order.
    pub const ALL: [Self; 10] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::NotFound,
        Self::Conflict,
        Self::Unreachable,
        Self::CheckFailed,
        Self::StillRunning,
        Self::Died,
        Self::Interrupted,
    ];

    /// Its number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Conflict => 4,
            Self::Unreachable => 5,
            Self::CheckFailed => 6,
            Self::StillRunning => 7,
            Self::Died => 70,
            Self::Interrupted => 130,
        }
    }

    /// The exit that a problem of the server means: by its stable code; by its HTTP status, where this
    /// program does not know the code.
    #[must_use]
    pub fn of_problem(code: &str, status: u16) -> Self {
        match code {
            "agent_not_found" | "job_not_found" | "invocation_not_found" | "not_found" => Self::NotFound,
            "job_finished"
            | "state_conflict"
            | "stale_attempt"
            | "idempotency_conflict"
            | "wait_over"
            | "in_doubt_unresolved"
            | "version_mismatch" => Self::Conflict,
            "invalid_agent" => Self::CheckFailed,
            "invalid_payload"
            | "invalid_request"
            | "no_rule"
            | "rule_failed"
            | "wrong_correlation_key"
            | "missing_correlation_key"
            | "not_supported_yet"
            | "payload_too_large"
            | "uri_too_long"
            | "headers_too_large"
            | "unauthorized"
            | "forbidden"
            | "method_not_allowed" => Self::Usage,
            "rate_limited" | "store_unavailable" | "overloaded" => Self::Unreachable,
            _ => Self::of_status(status),
        }
    }

    const fn of_status(status: u16) -> Self {
        match status {
            404 => Self::NotFound,
            409 => Self::Conflict,
            429 | 502..=504 => Self::Unreachable,
            400..=499 => Self::Usage,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_documented_ones() {
        let numbers: Vec<u8> = Exit::ALL.into_iter().map(Exit::code).collect();
        assert_eq!(i32::from(Exit::Died.code()), aetheris_store::vital::EXIT_DIED);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 70, 130]);
    }

    #[test]
    fn every_stable_code_has_an_exit() {
        let expected = [
            ("invocation_not_found", 404, Exit::NotFound),
            ("not_found", 404, Exit::NotFound),
            ("method_not_allowed", 405, Exit::Usage),
            ("overloaded", 503, Exit::Unreachable),
            ("internal", 500, Exit::Failed),
            ("agent_not_found", 404, Exit::NotFound),
            ("job_not_found", 404, Exit::NotFound),
            ("invalid_agent", 422, Exit::CheckFailed),
            ("invalid_payload", 400, Exit::Usage),
            ("invalid_request", 400, Exit::Usage),
            ("no_rule", 422, Exit::Usage),
            ("rule_failed", 422, Exit::Usage),
            ("wrong_correlation_key", 400, Exit::Usage),
            ("missing_correlation_key", 400, Exit::Usage),
            ("job_finished", 409, Exit::Conflict),
            ("state_conflict", 409, Exit::Conflict),
            ("too_early", 409, Exit::Conflict),
            ("stale_attempt", 409, Exit::Conflict),
            ("idempotency_conflict", 409, Exit::Conflict),
            ("wait_over", 409, Exit::Conflict),
            ("in_doubt_unresolved", 409, Exit::Conflict),
            ("not_supported_yet", 501, Exit::Usage),
            ("version_mismatch", 409, Exit::Conflict),
            ("payload_too_large", 413, Exit::Usage),
            ("uri_too_long", 414, Exit::Usage),
            ("headers_too_large", 431, Exit::Usage),
            ("rate_limited", 429, Exit::Unreachable),
            ("unauthorized", 401, Exit::Usage),
            ("forbidden", 403, Exit::Usage),
            ("store_unavailable", 503, Exit::Unreachable),
        ];
        for (code, status, exit) in expected {
            assert_eq!(Exit::of_problem(code, status), exit, "{code}");
        }
        let named: Vec<&str> = expected.iter().map(|(code, _, _)| *code).collect();
        for code in aetheris_api::ErrorCode::ALL {
            assert!(named.contains(&code.as_str()), "{code}");
        }
    }

    #[test]
    fn an_unknown_code_falls_back_to_the_status() {
        assert_eq!(Exit::of_problem("of_a_later_build", 404), Exit::NotFound);
        assert_eq!(Exit::of_problem("of_a_later_build", 409), Exit::Conflict);
        assert_eq!(Exit::of_problem("of_a_later_build", 418), Exit::Usage);
        assert_eq!(Exit::of_problem("of_a_later_build", 503), Exit::Unreachable);
        assert_eq!(Exit::of_problem("of_a_later_build", 500), Exit::Failed);
    }
}
