//! Readers of one text or one row.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

use aetheris_adapters::Guard;
use aetheris_adapters::guard::Why;
use aetheris_adapters::retry_after::retry_after as read_retry_after;
use aetheris_check::witness;
use aetheris_core::agent::Agent;
use aetheris_core::event::{Failure, codec};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, JobId, NodeId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::{Json, to_canonical};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::WaitType;
use aetheris_core::signal::{Incoming, Route, Upcoming, route};
use aetheris_core::state::{JobState, WaitPhase, WaitRecord};
use aetheris_core::time::{Span, Timestamp};
use aetheris_expr::{Context, Ended, JobNames, Place};
use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// An agent file: an agent whose plan can be executed and survives its stored form, or mistakes that say
/// where they are.
pub fn agent_file(bytes: &[u8]) {
    let Some(source) = text(bytes) else { return };
    match aetheris_agentfile::parse(source) {
        Ok(agent) => {
            for plan in agent.plans() {
                plan.compile().expect("each plan of an accepted file can be executed");
            }
            let compiled = agent.plan.compile().expect("an accepted file has a graph that can be executed");
            let mut seen = std::collections::BTreeSet::new();
            for node in compiled.ordered() {
                assert!(node.needs.iter().all(|need| seen.contains(need)), "{} stands before its needs", node.id);
                seen.insert(node.id.clone());
            }
            assert_eq!(seen.len(), agent.plan.nodes.len());
            let stored: Agent = serde_json::from_slice(&to_canonical(&agent)).expect("a stored agent can be read");
            assert_eq!(stored.hash(), agent.hash(), "an agent changes in its stored form");
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "a file is refused without a word");
            let lines = u32::try_from(source.split(['\n', '\r']).count()).unwrap_or(u32::MAX);
            for mistake in &mistakes {
                assert!(!mistake.message.is_empty() && mistake.line >= 1 && mistake.line <= lines + 1, "{mistake:?}");
            }
            assert!(mistakes.is_sorted_by_key(|mistake| mistake.line), "mistakes are not in the order of their lines");
        }
    }
}

fn scope() -> Context {
    let value = |value| Json::new(value);
    Context {
        early: false,
        env: Some(BTreeMap::from([("BASE".to_owned(), "https://example.com".to_owned())])),
        input: Some(value(serde_json::json!({ "cents": 5, "name": "é" }))),
        job: Some(JobNames { agent: AgentName::from("a"), id: JobId::from_u128(1), session: None }),
        message: Some(value(serde_json::json!({
            "n": 7, "f": 1.5, "s": "a b", "l": [3, 1, 2], "o": { "x": "y" }, "t": true, "z": null, "big": u64::MAX
        }))),
        nodes: BTreeMap::from([
            (NodeId::from("a"), Ended::Completed(value(serde_json::json!(["x", {}])))),
            (NodeId::from("b"), Ended::Failed(Failure::new("no", "never"))),
        ]),
    }
}

/// A template as it is, or many times behind one value: statements change what those before them have made,
/// so that data grows although no statement is large.
fn repeated(kind: u8, source: &str) -> String {
    let times = usize::from(kind / 2 % 32) * 16;
    if times == 0 || source.is_empty() {
        return source.to_owned();
    }
    let most = (limits::TEMPLATE_BYTES_MAX / source.len()).max(1);
    format!("{{%set a=1%}}{}{{{{ a }}}}", source.repeat(times.min(most)))
}

/// A template or a condition: bounded in its work and in what it makes, and the same each time.
pub fn template(bytes: &[u8]) {
    let Some((kind, source)) = bytes.split_first().and_then(|(kind, rest)| text(rest).map(|rest| (*kind, rest))) else {
        return;
    };
    let scope = scope();
    if kind % 2 == 0 {
        let source = &repeated(kind, source);
        let rendered = aetheris_expr::render_text(source, &scope);
        if let Ok(rendered) = &rendered {
            assert!(rendered.len() <= limits::TEMPLATE_OUTPUT_BYTES_MAX.max(source.len()));
        }
        assert_eq!(rendered, aetheris_expr::render_text(source, &scope));
        let value = aetheris_expr::render(&Json::new(serde_json::json!({ "a": source, "b": [source] })), &scope);
        if let Ok(value) = value {
            assert!(value.canonical().len() <= limits::PAYLOAD_BYTES_MAX);
        }
        for place in [Place::Plan, Place::ToolAddress, Place::ToolBody, Place::ToolHeader] {
            let _refused_or_not = aetheris_expr::check_template(source, place);
        }
    } else {
        let holds = aetheris_expr::condition(source, &scope);
        assert_eq!(holds, aetheris_expr::condition(source, &scope));
        let _refused_or_not = aetheris_expr::check_condition(source, Place::Plan);
    }
}

/// A stored event: refused, or an event whose canonical bytes are read back as the same.
pub fn event_decode(bytes: &[u8]) {
    let [kind, version, payload @ ..] = bytes else { return };
    let Ok(event) = codec::decode(*kind, u16::from(*version), payload) else { return };
    let canonical = event.canonical();
    let again = codec::decode(*kind, u16::from(*version), &canonical).expect("canonical bytes can be read");
    assert_eq!(again.canonical(), canonical, "canonical bytes are a fixed point");
    let twice = codec::decode(*kind, u16::from(*version), &again.canonical()).expect("canonical bytes can be read");
    assert_eq!(again, twice);
    let value: serde_json::Value = serde_json::from_slice(&canonical).expect("canonical bytes are JSON");
    assert_eq!(to_canonical(&Json::new(value)), canonical, "the fields of {} are not in order", event.kind().as_str());
}

/// A JSON value from outside: refused, or kept so that its canonical form is accepted as the same value.
pub fn json(bytes: &[u8]) {
    let Ok(value) = Json::parse(bytes) else { return };
    let canonical = value.canonical();
    if canonical.len() > limits::PAYLOAD_BYTES_MAX {
        return;
    }
    let again = Json::parse(&canonical).unwrap_or_else(|error| {
        panic!("{} is accepted and its canonical form is not: {error}", String::from_utf8_lossy(&canonical))
    });
    assert_eq!(again.canonical(), canonical);
    assert_eq!(again.hash(), value.hash());
    let spans = [value.as_str().and_then(|text| text.parse::<Span>().ok())];
    for span in spans.into_iter().flatten() {
        assert_eq!(span.to_string().parse::<Span>(), Ok(span));
    }
    if let Some(text) = value.as_str() {
        names(text);
    }
}

/// Texts that stand for values: what is read is written as the same text again.
fn names(text: &str) {
    if let Ok(id) = text.parse::<JobId>() {
        assert_eq!(id.to_string().to_ascii_uppercase(), text.to_ascii_uppercase());
    }
    if let Ok(key) = text.parse::<IdempotencyKey>() {
        assert_eq!(key.to_string().to_ascii_uppercase(), text.to_ascii_uppercase());
    }
    if let Ok(hash) = text.parse::<Hash>() {
        assert_eq!(hash.to_string(), text.to_ascii_lowercase());
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        assert_eq!(at.to_string().parse::<Timestamp>(), Ok(at));
    }
    if let Ok(fence) = witness::parse_fence(text) {
        assert_eq!(witness::parse_fence(&fence.to_string()), Ok(fence));
        let permit = witness::parse_permit(text).expect("a fence and a permit are written alike");
        assert_eq!(witness::parse_permit(&permit.to_string()), Ok(permit));
    }
    // Every text is a path, and comes back.
    let path = StepPath::from(text);
    assert_eq!(path.text(), text);
    assert_eq!(path.is_whole(), path.node().as_str() == text);
    if let Ok(timer) = text.parse::<aetheris_core::event::TimerId>() {
        assert_eq!(timer.to_string(), text);
    }
}

/// States in which a job meets a signal: each phase of a wait of the key `k`, alive and ended.
fn states() -> Vec<JobState> {
    let record = |phase| WaitRecord { node: StepPath::from("a"), phase, wait_type: WaitType::Human };
    let delivered = WaitPhase::Delivered {
        payload_hash: Json::new(serde_json::json!(1)).hash(),
        signal: aetheris_core::id::SignalId::from_u128(1),
    };
    let phases = [None, Some(WaitPhase::Open), Some(WaitPhase::Over), Some(delivered)];
    let statuses = JobStatus::ALL;
    phases
        .iter()
        .flat_map(|phase| statuses.map(|status| (phase.clone(), status)))
        .map(|(phase, status)| {
            let mut state = JobState::new(JobId::from_u128(1));
            state.status = status;
            state.waits.extend(phase.map(|phase| ("k".to_owned(), record(phase))));
            state
        })
        .collect()
}

/// A signal's body, and what it meets in every state: the order of the checks.
pub fn signal(bytes: &[u8]) {
    let Ok(request) = serde_json::from_slice::<aetheris_api::SignalRequest>(bytes) else { return };
    let written = serde_json::to_vec(&request).expect("a request can be written");
    assert_eq!(serde_json::from_slice::<aetheris_api::SignalRequest>(&written).expect("and read"), request);
    let payload = request.payload.map(|payload| payload.parse());
    let (Some(key), Some(Ok(payload))) = (request.correlation_key, payload) else { return };
    let incoming = Incoming { key: key.clone(), payload_hash: payload.hash(), wait_type: request.wait_type };
    let upcoming = [
        Upcoming { key: Some("later".to_owned()), wait_type: WaitType::Signal },
        Upcoming { key: None, wait_type: WaitType::Webhook },
    ];
    for state in states() {
        for upcoming in [None, Some(&upcoming[..]), Some(&upcoming[..1]), Some(&[])] {
            let met = route(&state, upcoming, &incoming);
            let record = state.waits.get(&key);
            let fits = |wait: WaitType| incoming.wait_type.is_none_or(|claimed| claimed == wait);
            match met {
                Route::Deliver(node) => {
                    assert!(!state.status.is_terminal() && node.text() == "a");
                    assert!(record.is_some_and(|record| record.phase == WaitPhase::Open && fits(record.wait_type)));
                }
                Route::AlreadyDelivered { payload_matches } => {
                    let phase = record.map(|record| record.phase.clone());
                    let Some(WaitPhase::Delivered { payload_hash, .. }) = phase else {
                        panic!("nothing was delivered")
                    };
                    assert_eq!(payload_matches, payload_hash == incoming.payload_hash);
                }
                Route::Keep => assert!(record.is_none() && !state.status.is_terminal()),
                Route::JobFinished => assert!(state.status.is_terminal()),
                Route::WaitOver => assert!(record.is_some_and(|record| record.phase == WaitPhase::Over)),
                Route::WrongType(expected) => assert!(!fits(expected)),
                Route::WrongKey => assert!(record.is_none() && upcoming.is_some() && !state.status.is_terminal()),
            }
        }
    }
}

/// A witness log and the texts in it.
pub fn witness(bytes: &[u8]) {
    let Some(log) = text(bytes) else { return };
    if let Ok(lines) = witness::parse(log) {
        let written: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
        assert_eq!(witness::parse(&written).expect("what was written can be read"), lines);
    }
    names(log);
}

/// The header `Retry-After`, with the answer's own `Date` after a line break.
pub fn retry_after(bytes: &[u8]) {
    let (asked, date) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len()));
    let mut headers = HeaderMap::new();
    let Ok(asked) = HeaderValue::from_bytes(asked) else { return };
    headers.insert(RETRY_AFTER, asked);
    if let Ok(date) = HeaderValue::from_bytes(date.get(1..).unwrap_or_default()) {
        headers.insert(DATE, date);
    }
    let read = read_retry_after(&headers);
    let policy = aetheris_core::retry::RetryPolicy::default();
    assert!(policy.delay(1, u64::MAX, read) <= policy.max_backoff.max(policy.backoff));
}

/// A URL that a tool is to call: what passes is http or https without a user, and if its host is an
/// address, a public one by the plain rules of RFC 6890.
pub fn address(bytes: &[u8]) {
    static GUARD: OnceLock<Arc<Guard>> = OnceLock::new();
    let guard = GUARD.get_or_init(|| Arc::new(Guard::default()));
    let Some(url) = text(bytes).and_then(|text| reqwest::Url::parse(text).ok()) else { return };
    let judged = guard.check_url(&url);
    assert_eq!(judged, guard.check_url(&url));
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    match judged {
        Ok(()) => {
            assert!(matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none());
            assert!(literal.is_none_or(is_public), "{url} is let through");
        }
        Err(blocked) => match blocked.why {
            Why::Address(_) => assert!(literal.is_some()),
            Why::Own => panic!("a URL alone does not say who listens there"),
            Why::Scheme(scheme) => assert!(!matches!(scheme.as_str(), "http" | "https")),
            Why::UserInfo => assert!(!url.username().is_empty() || url.password().is_some()),
        },
    }
}

/// The same question as the guard's, answered by other means: the standard library and plain comparisons.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => {
            let parts = v6.segments();
            let [.., a, b, c, d] = v6.octets();
            if parts[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
                return is_public_v4(Ipv4Addr::new(a, b, c, d));
            }
            parts[0] & 0xe000 == 0x2000
                && !(parts[0] == 0x2001 && parts[1] < 0x200)
                && !(parts[0] == 0x2001 && parts[1] == 0xdb8)
                && parts[0] != 0x2002
                && !(parts[0] == 0x3fff && parts[1] < 0x1000)
        }
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    !(v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_documentation()
        || v4.is_broadcast()
        || v4.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b))
        || v4 == Ipv4Addr::new(168, 63, 129, 16))
}
