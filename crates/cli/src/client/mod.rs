//! The HTTP client of the commands: one connection pool, timeouts, and typed errors.

mod follow;
mod pages;
mod sse;

use std::time::Duration;

use aetheris_api::{ErrorCode, Problem};
use aetheris_core::id::JobId;
use reqwest::{Method, RequestBuilder, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

pub(crate) use self::follow::AWAY_MAX;
pub use self::follow::{Follow, News, is_last};
pub use self::pages::{Page, Pages};
use crate::error::Error;
use crate::out::Out;

/// Longest time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take before a terminal is told that it is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Longest time for an answer that is not a stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer: as its type, and as it came.
#[derive(Debug, Clone)]
pub struct Answer<T> {
    /// What it says.
    pub body: T,
    /// Its HTTP status.
    pub status: u16,
    bytes: Vec<u8>,
}

impl<T> Answer<T> {
    /// The answer as the server wrote it, with fields that this program does not know.
    ///
    /// # Errors
    /// [`Error::Internal`], which cannot be for an answer that was read as its type.
    pub fn json(&self) -> Result<Value, Error> {
        Ok(serde_json::from_slice(&self.bytes).map_err(anyhow::Error::from)?)
    }

    /// Whether what was asked for was so before: nothing was written.
    pub fn is_unchanged(&self) -> bool {
        self.status == 200
    }
}

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    /// The server without name and password, as messages call it.
    shown: String,
    /// Where a long wait is shown.
    out: Option<Out>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.shown).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the server at a URL; nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Usage`] where it is no http or https URL.
    pub fn new(server: &str) -> Result<Self, Error> {
        let base = Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(base) = base else {
            let shown = without_secret(server);
            return Err(Error::Usage(format!("`{shown}` is not a server: expected a URL, as http://127.0.0.1:8080")));
        };
        let mut builder = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true);
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(anyhow::Error::from)?;
        Ok(Self { http, shown: without_secret(server), base, out: None })
    }

    /// The same client, which shows there that an answer takes long.
    #[must_use]
    pub fn told_on(self, out: &Out) -> Self {
        Self { out: Some(out.clone()), ..self }
    }

    /// The server, as it is named in messages: never with the password that its URL may have.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.shown
    }

    /// Reads.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Answer<T>, Error> {
        self.send(self.request(Method::GET, path, query)?).await
    }

    /// Sends a value.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
        headers: &[(&str, &str)],
    ) -> Result<Answer<T>, Error> {
        let mut request = self.request(Method::POST, path, &[])?.json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request).await
    }

    /// Puts an agent file.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn put_file<T: DeserializeOwned>(&self, path: &[&str], text: String) -> Result<Answer<T>, Error> {
        let request = self.request(Method::PUT, path, &[])?.header("content-type", "application/yaml").body(text);
        self.send(request).await
    }

    /// The address of a call. Every part of its path is one part of the address, or the call would be another one.
    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, Error> {
        if let Some(part) = path.iter().find(|part| !is_one_part(part)) {
            return Err(no_part(path, part));
        }
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    fn request(&self, method: Method, path: &[&str], query: &[(&str, &str)]) -> Result<RequestBuilder, Error> {
        Ok(self.http.request(method, self.url(path, query)?).timeout(ANSWER_TIMEOUT))
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Answer<T>, Error> {
        let (http, request) = request.build_split();
        let request =
            request.map_err(|error| Error::Usage(format!("the request cannot be made: {}", chain(&error))))?;
        let call = format!("{} {}", request.method(), request.url().path());
        let reads = *request.method() == Method::GET;
        let answered = async {
            let response = http.execute(request).await?;
            let status = response.status();
            Ok((status, response.bytes().await?.to_vec()))
        };
        let answered = self.waited(&call, answered).await;
        let (status, bytes) = answered.map_err(|error: reqwest::Error| {
            if reads || error.is_connect() { self.unreachable(&error) } else { self.unanswered(&call, &error) }
        })?;
        if !status.is_success() {
            return Err(self.problem(&call, status.as_u16(), &bytes));
        }
        match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(Answer { body, status: status.as_u16(), bytes }),
            Err(error) => Err(self.unexpected(&call, status.as_u16(), error.to_string())),
        }
    }

    /// Waits for an answer, and says so where it takes long.
    async fn waited<T>(&self, call: &str, answer: impl Future<Output = T>) -> T {
        let Some(out) = self.out.as_ref().filter(|out| out.watched) else { return answer.await };
        let began = Instant::now();
        let mut answer = std::pin::pin!(answer);
        let mut said = false;
        loop {
            let pause = if said { Duration::from_secs(1) } else { SILENCE_MAX };
            tokio::select! {
                answer = &mut answer => {
                    if said {
                        out.progress("");
                    }
                    return answer;
                }
                () = tokio::time::sleep(pause) => said = true,
            }
            out.progress(&format!("{}s: waiting for {} to answer {call}", began.elapsed().as_secs(), self.shown));
        }
    }

    fn problem(&self, call: &str, status: u16, bytes: &[u8]) -> Error {
        match serde_json::from_slice::<Problem>(bytes) {
            Ok(problem) => Error::Problem(Box::new(Problem { status, ..problem })),
            Err(_) if status == ErrorCode::StoreUnavailable.status() => {
                self.unexpected(call, status, "503 without a reason")
            }
            Err(_) => self.unexpected(call, status, format!("status {status}")),
        }
    }

    fn unexpected(&self, call: &str, status: u16, reason: impl Into<String>) -> Error {
        Error::Unexpected { server: self.server().to_owned(), call: call.to_owned(), reason: reason.into(), status }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        Error::Unreachable { server: self.server().to_owned(), reason: reason(error) }
    }

    /// A call that has left and may have been accepted.
    fn unanswered(&self, call: &str, error: &reqwest::Error) -> Error {
        let advice = "run the same command again: what was accepted before is not done twice".to_owned();
        Error::Unanswered { advice, call: call.to_owned(), reason: reason(error), server: self.server().to_owned() }
    }
}

/// Whether a text stands in an address as what it is. Nothing and dots are taken out of it, and so are tabs and line ends:
/// what is left would be another name.
fn is_one_part(part: &str) -> bool {
    !matches!(part, "" | "." | "..") && !part.contains(['\t', '\n', '\r'])
}

/// What is said of a name that no address has: nothing is called so.
fn no_part(path: &[&str], part: &str) -> Error {
    let (code, detail) = match path {
        ["api", "jobs", job, ..] if *job == part => {
            (ErrorCode::JobNotFound, job.parse::<JobId>().map_or_else(|wrong| wrong.to_string(), |_| String::new()))
        }
        ["api", "agents", ..] => (ErrorCode::AgentNotFound, format!("there is no agent `{part}`")),
        _ => {
            return Error::Usage(format!("`{part}` is no name: it cannot be a part of the address {}", path.join("/")));
        }
    };
    Error::Problem(Box::new(Problem::new(code, detail)))
}

/// Why there is no answer.
fn reason(error: &reqwest::Error) -> String {
    match () {
        () if error.is_timeout() && error.is_connect() => {
            format!("no connection within {}s", CONNECT_TIMEOUT.as_secs())
        }
        () if error.is_timeout() => format!("it has not answered within {}s", ANSWER_TIMEOUT.as_secs()),
        () if is_without_tls(error) => "it does not speak TLS; does its URL begin with http:// ?".to_owned(),
        () => chain(error),
    }
}

/// Whether the other side answered a TLS handshake with something else.
fn is_without_tls(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::InvalidMessage(_)) = error.downcast_ref::<rustls::Error>() {
            return true;
        }
        // What an I/O error wraps is not among its sources.
        cause = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    false
}

/// A server's URL for messages: without the name and the password that may stand in it. Of a text that is
/// no URL nothing before the last `@` is kept.
#[must_use]
pub fn without_secret(server: &str) -> String {
    match Url::parse(server) {
        Ok(mut url) if url.has_host() => {
            // Neither can be refused where there is a host.
            let _cleared = (url.set_username(""), url.set_password(None));
            url.as_str().trim_end_matches('/').to_owned()
        }
        Ok(_) | Err(_) => server.rsplit('@').next().unwrap_or_default().to_owned(),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The last cause of an error, which is what happened.
fn chain(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proxy would be asked for a server of its own machine.
    #[test]
    fn what_is_on_this_machine_is_asked_without_a_proxy() {
        for (url, own) in [
            ("http://localhost:8080", true),
            ("http://127.0.0.1", true),
            ("http://127.8.0.1:1", true),
            ("https://[::1]:8080/x", true),
            ("http://[::ffff:127.0.0.1]:8080", true),
            ("http://localhost.example", false),
            ("http://10.0.0.1", false),
            ("http://[::2]", false),
            ("http://host", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), own, "{url}");
        }
    }

    /// Nobody is told of a moment, and everybody of what takes long, until it is there.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_takes_long_is_waited_for_in_sight() {
        use tokio::time::sleep;
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let kept = crate::tests::Kept::default();
        let styles = [crate::render::Style::default(); 2];
        let mut out = Out::to(Box::new(std::io::sink()), Box::new(kept.clone()), false, false, styles);
        let client = Client::new("http://127.0.0.1:9").unwrap();
        client.clone().told_on(&out).waited("GET /x", sleep(Duration::from_secs(9))).await;
        out.watched = true;
        let client = client.told_on(&out);
        client.waited("GET /x", sleep(Duration::from_millis(1_999))).await;
        assert_eq!(kept.text(), "", "nobody looks, or nothing takes long");
        client.waited("GET /x", sleep(Duration::from_millis(4_500))).await;
        let said = [2, 3, 4].map(|s| format!("\r{s}s: waiting for http://127.0.0.1:9 to answer GET /x\u{1b}[K"));
        assert_eq!(kept.text(), said.concat() + "\r\u{1b}[K");
    }
}
