//! What is sent: a tool's templates, rendered, with the headers that the runtime sets.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::event::Failure;
use aetheris_core::json::Json;
use aetheris_core::plan::HttpTool;
use aetheris_expr::{Context, JobNames, Place, Rendered, Texts};
use aetheris_runtime::aside::rendered;
use aetheris_runtime::ports::ToolCall;
use reqwest::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use reqwest::{Method, Request, Url};

use crate::exchange::{Quotation, origin};
use crate::guard::{Blocked, Guard};
use crate::secret::{EnvSource, Scrubber};

/// Headers by which HTTP frames its messages; they are not an author's to set.
const FRAMING: [HeaderName; 8] = [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// A request that can be sent, and the words for it.
pub(super) struct Prepared {
    body: Option<Vec<u8>>,
    /// The tool's own headers, which are for the origin that its author named.
    headers: HeaderMap,
    method: Method,
    /// The runtime's headers.
    names: HeaderMap,
    /// The URL as its author wrote it, where environment variables stand in it.
    private_url: Option<String>,
    pub(super) scrubber: Scrubber,
    pub(super) url: Url,
}

impl Prepared {
    /// Renders everything. What fails here fails at every try.
    pub(super) fn render(call: &ToolCall, tool: &HttpTool, env: &EnvSource) -> Result<Self, Failure> {
        let about = |what: &str, problem: &str| format!("the {what} of tool `{}` {problem}", call.tool_name);
        let method = super::method(&tool.method).ok_or_else(|| {
            Failure::new("invalid_method", about("method", "is none of GET, POST, PUT, PATCH, DELETE"))
        })?;
        let url_names = names(&tool.url);
        let header_names = tool.headers.values().flat_map(|header| names(header)).collect::<BTreeSet<_>>();
        let mut values = BTreeMap::new();
        for name in url_names.iter().chain(&header_names) {
            let value = env.get(name).map_err(|problem| Failure::new("env_unavailable", problem))?;
            values.insert(name.clone(), value);
        }
        let sent = values.iter().filter(|(name, _)| header_names.contains(*name)).map(|(_, value)| value.as_str());
        let mut scrubber = Scrubber::new(values.values().map(String::as_str), sent);
        let job = JobNames { agent: call.agent.clone(), id: call.job, session: call.session.clone() };
        let mut scope = Context { input: Some(call.input.clone()), job: Some(job), ..Context::default() };
        let body = body(tool, &method, &scope).map_err(|error| Failure::new("invalid_body", about("body", &error)))?;
        scope.env = Some(values.clone());
        let rendered = rendered(&scope, |texts| texts.address(&tool.url))
            .map_err(|error| scrubber.text(&format!("cannot be rendered: {error}")))
            .and_then(|rendered| address(&rendered));
        let url = rendered.map_err(|problem| Failure::new("invalid_url", about("url", &problem)))?;
        let headers = headers(tool, &scope)
            .map_err(|(name, problem)| about(&format!("header `{name}`"), &scrubber.text(&problem)))
            .map_err(|message| Failure::new("invalid_header", message))?;
        let behind = aetheris_expr::check_template(behind_authority(&tool.url), Place::ToolAddress);
        // A part that cannot be read by itself belongs to a block that begins before.
        let behind = behind.map_or_else(|_| url_names.clone(), |references| references.env);
        scrubber.in_address(behind.iter().filter_map(|name| values.get(name)).map(String::as_str));
        let private_url = (!url_names.is_empty()).then(|| tool.url.clone());
        if private_url.is_some() {
            // A secret may have become several parts of the URL, each of which tells a piece of it.
            let parts = [url.host_str(), Some(url.path()), url.query()].into_iter().flatten();
            scrubber.hide(parts.filter(|part| !tool.url.contains(part)));
        }
        let names = runtime_headers(call);
        Ok(Self { body, headers, method, names, private_url, scrubber, url })
    }

    /// The request itself.
    pub(super) fn message(&self) -> Request {
        let mut request = Request::new(self.method.clone(), self.url.clone());
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if self.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        // The runtime's last: no author replaces the key or the fence.
        for (name, value) in self.headers.iter().chain(&self.names) {
            headers.insert(name, value.clone());
        }
        *request.body_mut() = self.body.clone().map(reqwest::Body::from);
        request
    }

    /// Turns this into the request of the next hop. Another origin gets nothing that was meant for the
    /// first one.
    pub(super) fn redirect(&mut self, location: Url, guard: &Guard) -> Result<(), Failure> {
        if let Err(blocked) = guard.check_url(&location) {
            return Err(self.blocked(&blocked));
        }
        let another = if aetheris_fault::planted!("redirect-ignores-scheme") {
            (location.host_str(), location.port()) != (self.url.host_str(), self.url.port())
        } else {
            location.origin() != self.url.origin()
        };
        if another {
            self.headers.clear();
        }
        self.url = location;
        Ok(())
    }

    /// Whether a redirect of it can be followed.
    pub(super) fn is_get(&self) -> bool {
        self.method == Method::GET
    }

    /// A failure of this request in words: what was called, and what happened.
    pub(super) fn failure(&self, code: &str, what: &str) -> Failure {
        let called = match &self.private_url {
            Some(template) => template.split('?').next().unwrap_or_default().to_owned(),
            // A redirect may lead to an address that quotes what the tool's headers hold.
            None => self.scrubber.text(&format!("{}{}", origin(&self.url), self.url.path())),
        };
        Failure::new(code, format!("{} {called} {}", self.method, self.scrubber.text(what)))
    }

    /// The same with a quotation from the answer.
    pub(super) fn quoting(&self, code: &str, what: &str, quotation: &Quotation) -> Failure {
        let quotation = quotation.shown(&self.scrubber);
        let colon = if quotation.is_empty() { "" } else { ": " };
        self.failure(code, &format!("{what}{colon}{quotation}"))
    }

    pub(super) fn blocked(&self, blocked: &Blocked) -> Failure {
        self.failure("blocked_address", &format!("is not allowed: {blocked}"))
    }
}

/// Of an address as its author wrote it, what stands behind the host and its port. What stands before or there is what
/// others call the server by: a region, a customer, the whole base of the address.
fn behind_authority(url: &str) -> &str {
    let written = outside(url);
    let delimiter = |from: usize| written.iter().position(|(at, c)| *at >= from && matches!(c, '/' | '?' | '#'));
    let Some(first) = delimiter(0) else { return "" };
    let is = |place: Option<usize>, c: char| {
        place.and_then(|place| written.get(place)).is_some_and(|(_, found)| *found == c)
    };
    let scheme = is(first.checked_sub(1), ':') && is(Some(first), '/') && is(Some(first + 1), '/');
    let end = if scheme { delimiter(written[first].0 + 2) } else { Some(first) };
    end.map_or("", |end| &url[written[end].0..])
}

/// The characters of a template that stand there as they are, and where.
fn outside(template: &str) -> Vec<(usize, char)> {
    let mut closing = None;
    let mut written = Vec::new();
    let mut inside_until = 0;
    for (at, c) in template.char_indices() {
        let rest = &template[at..];
        match closing {
            None => {
                let opened =
                    [("{{", "}}"), ("{%", "%}"), ("{#", "#}")].into_iter().find(|(open, _)| rest.starts_with(open));
                closing = opened.map(|(_, close)| close);
                if closing.is_none() && at >= inside_until {
                    written.push((at, c));
                }
            }
            Some(close) if rest.starts_with(close) => (closing, inside_until) = (None, at + close.len()),
            Some(_) => {}
        }
    }
    written
}

/// The environment variables that a template names. One that cannot be read names none, and fails when it
/// is rendered.
fn names(template: &str) -> BTreeSet<String> {
    aetheris_expr::check_template(template, Place::ToolAddress).map(|references| references.env).unwrap_or_default()
}

/// Every environment variable that a tool names in its url and headers, and where it does so first: a JSON pointer
/// into the tool.
pub(super) fn all_names(tool: &HttpTool) -> BTreeMap<String, String> {
    let pointer = |header: &String| format!("/headers/{}", header.replace('~', "~0").replace('/', "~1"));
    let headers = tool.headers.iter().map(|(header, template)| (pointer(header), template));
    let mut places = BTreeMap::new();
    for (place, template) in [("/url".to_owned(), &tool.url)].into_iter().chain(headers) {
        for name in names(template) {
            places.entry(name).or_insert_with(|| place.clone());
        }
    }
    places
}

/// The address of a tool as far as its author wrote out the host; `None` where a template is part of it.
pub(super) fn written_address(tool: &HttpTool) -> Option<Url> {
    let end = ["{{", "{%", "{#"].iter().filter_map(|opening| tool.url.find(opening)).min();
    let known = &tool.url[..end.unwrap_or(tool.url.len())];
    let behind_scheme = known.split_once("://").map_or("", |(_, rest)| rest);
    if end.is_some() && !behind_scheme.contains(['/', '?', '#']) {
        return None;
    }
    Url::parse(known.trim()).ok()
}

fn body(tool: &HttpTool, method: &Method, scope: &Context) -> Result<Option<Vec<u8>>, String> {
    let whole_input = || scope.input.clone().unwrap_or_else(Json::null);
    let body = match &tool.body {
        _ if method == Method::GET => None,
        None if method == Method::DELETE => None,
        None => Some(whole_input()),
        Some(template) => {
            let body = rendered(scope, |texts| texts.value(template));
            Some(body.map_err(|error| format!("cannot be rendered: {error}"))?)
        }
    };
    Ok(body.map(|json| json.canonical()))
}

/// The URL of a rendered address: one that is called names the host that its author wrote, whatever a reader of URLs
/// makes of the rest.
fn address(rendered: &Rendered) -> Result<Url, String> {
    let parse = |text: &str| Url::parse(text.trim()).map_err(|error| format!("is not a URL: {error}"));
    let host = |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
    let url = parse(&rendered.text)?;
    match &rendered.origin {
        Some(origin) if host(&parse(origin)?) != host(&url) => Err("has another host than its author wrote".to_owned()),
        Some(_) | None => Ok(url),
    }
}

/// The tool's own headers, or the name of the one that is wrong and why.
fn headers(tool: &HttpTool, scope: &Context) -> Result<HeaderMap, (String, String)> {
    rendered(scope, |texts| headers_of(tool, texts))
}

/// All of them together have the work of one value.
fn headers_of(tool: &HttpTool, texts: &mut Texts<'_>) -> Result<HeaderMap, (String, String)> {
    let mut headers = HeaderMap::new();
    for (name, template) in &tool.headers {
        let wrong = |problem: &str| (name.clone(), problem.to_owned());
        let key: HeaderName = name.parse().map_err(|_| wrong("has a name that HTTP does not allow"))?;
        if FRAMING.contains(&key) {
            return Err(wrong("belongs to the connection and cannot be set"));
        }
        let text = texts.render(template).map_err(|error| wrong(&format!("cannot be rendered: {error}")))?;
        let mut value = HeaderValue::try_from(text).map_err(|_| wrong("has characters that HTTP does not allow"))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

/// What travels with every call. Names of jobs and nodes are plain by their own rules; a value that is
/// not would be left out.
fn runtime_headers(call: &ToolCall) -> HeaderMap {
    let values = [
        (HeaderName::from_static("idempotency-key"), call.key.to_string()),
        (HeaderName::from_static("aetheris-attempt"), call.try_number.to_string()),
        (HeaderName::from_static("aetheris-fence"), call.fence.to_string()),
        (HeaderName::from_static("aetheris-job"), call.job.to_string()),
        (HeaderName::from_static("aetheris-node"), call.node.to_string()),
    ];
    let permit = call.permit.map(|permit| (HeaderName::from_static("aetheris-permit"), permit.to_string()));
    values
        .into_iter()
        .chain(permit)
        .filter_map(|(name, value)| Some((name, HeaderValue::try_from(value).ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_the_host_of_an_address_is_known_as_it_is_written() {
        for (url, behind) in [
            ("https://h/a?b", "/a?b"),
            ("https://h:1?b={{ env.A }}", "?b={{ env.A }}"),
            ("https://{{ env.H }}:{{ env.P }}/{{ env.A }}", "/{{ env.A }}"),
            ("{{ env.BASE }}/a?next=https://x/y", "/a?next=https://x/y"),
            ("{{ env.BASE ~ '/' }}{{ env.PATH }}", ""),
            ("http://{% if input.x %}a/b{% endif %}c#d", "/b{% endif %}c#d"),
            ("http://h", ""),
            ("{{ env.URL }}", ""),
            ("", ""),
        ] {
            assert_eq!(behind_authority(url), behind, "{url}");
        }
    }

    #[test]
    fn an_authors_headers_go_to_no_other_origin() {
        let goes = |location: &str| {
            let secret = (HeaderName::from_static("authorization"), HeaderValue::from_static("Bearer s3cret"));
            let fence = (HeaderName::from_static("aetheris-fence"), HeaderValue::from_static("1.2"));
            let mut prepared = Prepared {
                body: None,
                headers: [secret].into_iter().collect(),
                method: Method::GET,
                names: [fence].into_iter().collect(),
                private_url: None,
                scrubber: Scrubber::new([], []),
                url: Url::parse("https://pay.example/orders").unwrap(),
            };
            prepared.redirect(Url::parse(location).unwrap(), &Guard::new([])).unwrap();
            let sent = prepared.message();
            assert_eq!(sent.headers()["aetheris-fence"], "1.2");
            sent.headers().contains_key("authorization")
        };
        for same in ["https://pay.example/other", "https://pay.example:443/orders?page=2"] {
            assert!(goes(same), "{same}");
        }
        for other in [
            "http://pay.example/orders",
            "http://pay.example:443/orders",
            "https://pay.example:8443/orders",
            "https://pay.example.org/orders",
            "https://a.pay.example/orders",
        ] {
            assert!(!goes(other), "{other}");
        }
    }
}
