//! Whose name a request asks for.
//!
//! A server without authentication that listens on loopback is protected by being out of reach. A page of any site can
//! reach it all the same, if the site's name is made to lead to 127.0.0.1: to the browser it is then that site's own
//! server. Only the name gives it away.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::error::Failure;
use crate::state::Shared;

/// The names under which a server answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Hosts {
    /// Whatever it is called: others reach it anyway.
    #[default]
    Any,
    /// `localhost`, addresses, and these.
    Own(Vec<String>),
}

impl Hosts {
    /// Whether a `Host` header, with its port or without, is one of them. An address is nobody's name.
    #[must_use]
    pub fn accept(&self, header: &str) -> bool {
        let Self::Own(names) = self else { return true };
        let name = match header.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
            Some(_) => return false,
            None => header.split_once(':').map_or(header, |(name, _)| name),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Refuses what asks for another server.
pub(crate) async fn check(State(app): State<Shared>, request: Request, next: Next) -> Result<Response, Failure> {
    match foreign(&app.state.hosts, request.headers()) {
        None => Ok(next.run(request).await),
        Some(name) => Err(Failure::invalid(format!(
            "Host: `{name}` is not a name of this server, which listens on loopback only: ask for localhost or \
             127.0.0.1, or add the name to server.hosts in its configuration"
        ))),
    }
}

fn foreign(hosts: &Hosts, headers: &HeaderMap) -> Option<String> {
    let given = headers.get_all(header::HOST).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    given.into_iter().find(|name| !hosts.accept(name)).map(|name| name.chars().take(128).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_loopback_answers_to_its_own_names() {
        let hosts = Hosts::Own(vec!["box.example".to_owned()]);
        for own in [
            "localhost",
            "LOCALHOST:8080",
            "localhost.",
            "127.0.0.1:8080",
            "127.0.0.2",
            "[::1]:8080",
            "[::1]",
            "Box.example:80",
        ] {
            assert!(hosts.accept(own), "{own}");
        }
        for foreign in [
            "evil.example:8080",
            "localhost.evil.example",
            "evil-localhost",
            "127.0.0.1.evil.example",
            "[::1].evil.example",
            "",
            "x",
        ] {
            assert!(!hosts.accept(foreign), "{foreign}");
        }
        assert!(Hosts::Any.accept("evil.example"));
    }
}
