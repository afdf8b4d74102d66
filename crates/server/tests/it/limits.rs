use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_store::Purpose;
use aetheris_store::faulty::{Fault, FaultPlan, FaultyStore, Op};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::ManualClock;
use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tower::ServiceExt;

use crate::bed::{APPROVE, Bed, large_job};
use crate::between::Between;
use crate::children;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn what_is_too_large_is_413_whatever_it_is() {
    let bed = Bed::with_agents().await;
    let message = |bytes: usize| format!(r#"{{"message": "{}"}}"#, "x".repeat(bytes));
    let path = "/api/agents/approve/message";
    bed.call("POST", path, message(MIB - 2)).await.is(202);
    bed.call("POST", path, message(MIB)).await.problem(413, "payload_too_large");
    // Spaces are part of a body, and not of what it says.
    for (bytes, status) in [(limits::BODY_BYTES_MAX, 202), (limits::BODY_BYTES_MAX + 1, 413)] {
        let said = r#"{"message": 1}"#;
        let whole = || format!("{said}{}", " ".repeat(bytes - said.len()));
        let pieces = stream::iter([Ok::<_, Infallible>(whole())]);
        for body in [Body::from(whole()), Body::from_stream(pieces)] {
            assert_eq!(bed.call("POST", path, body).await.status, status, "{bytes}");
        }
    }
    bed.call("POST", path, message(2 * MIB)).await.problem(413, "payload_too_large");
    let file = format!("{APPROVE}\n# {}", "x".repeat(MIB));
    bed.call("PUT", "/api/agents/approve", file).await.problem(413, "payload_too_large");
    let job = bed.waiting().await;
    let signal = format!(r#"{{"correlation_key": "ok-7", "payload": "{}"}}"#, "x".repeat(MIB));
    bed.call("POST", &format!("/api/jobs/{job}/signal"), signal).await.problem(413, "payload_too_large");
    let (job, key) = bed.doubted().await;
    let answer = format!(r#"{{"outcome": "happened", "note": "seen", "permit": 1, "result": "{}"}}"#, "x".repeat(MIB));
    bed.call("POST", &format!("/api/jobs/{job}/in-doubt/{key}"), answer).await.problem(413, "payload_too_large");
}

/// `1e20` is four bytes as it is sent and 21 as it is stored.
#[tokio::test]
async fn what_is_too_large_in_canonical_form_is_413_too() {
    let bed = Bed::with_agents().await;
    let numbers = format!("[{}]", vec!["1e20"; 150_000].join(","));
    let message = format!(r#"{{"message": {numbers}}}"#);
    bed.call("POST", "/api/agents/approve/message", message).await.problem(413, "payload_too_large");
    let job = bed.waiting().await;
    let signal = format!(r#"{{"correlation_key": "ok-7", "payload": {numbers}}}"#);
    bed.call("POST", &format!("/api/jobs/{job}/signal"), signal).await.problem(413, "payload_too_large");
    let (job, key) = bed.doubted().await;
    let answer = format!(r#"{{"outcome": "happened", "note": "seen", "permit": 1, "result": {numbers}}}"#);
    bed.call("POST", &format!("/api/jobs/{job}/in-doubt/{key}"), answer).await.problem(413, "payload_too_large");
}

#[tokio::test]
async fn a_body_of_unknown_length_is_bounded_too() {
    let bed = Bed::with_agents().await;
    let chunks = (0..3_000).map(|_| Ok::<_, std::convert::Infallible>(vec![b' '; 1_024]));
    let body = axum::body::Body::from_stream(futures_util::stream::iter(chunks));
    bed.call("POST", "/api/agents/approve/message", body).await.problem(413, "payload_too_large");
}

#[tokio::test]
async fn a_page_of_large_events_is_shorter_and_goes_on() {
    let bed = Bed::new();
    let job = large_job(&bed, 40).await;
    let (mut after, mut seen, mut pages) = (0, Vec::new(), Vec::new());
    loop {
        let page = bed.get(&format!("/api/jobs/{job}/events?after={after}&limit=1000")).await;
        let events = page.is(200)["events"].as_array().unwrap();
        pages.push(events.len());
        seen.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
        let Some(next) = page.body["next_after"].as_u64() else {
            break;
        };
        after = next;
    }
    // Four of 300 KiB are over one MiB.
    assert_eq!(pages[0], 11);
    assert!(pages.iter().all(|events| *events <= 11), "{pages:?}");
    assert_eq!(seen, (1..=83).collect::<Vec<_>>());
}

#[tokio::test]
async fn absurd_pages_and_cursors_are_harmless() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "1").await;
    bed.get("/api/jobs?limit=9223372036854775807").await.is(200);
    bed.get(&format!("/api/jobs/{job}/events?limit=4000000000&after=0")).await.is(200);
    let none = bed.get(&format!("/api/jobs/{job}/events?after=9223372036854775807")).await;
    assert_eq!(none.is(200)["events"].as_array().unwrap().len(), 0);
    for query in [
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=9223372036854775808",
        "limit=99999999999999999999",
        "cursor=abc",
        "limit=1&limit=2",
    ] {
        bed.get(&format!("/api/jobs?{query}")).await.problem(400, "invalid_request");
    }
    for query in ["limit=0", "after=-1", "after=x", "after=9223372036854775808", "before=1"] {
        bed.get(&format!("/api/jobs/{job}/events?{query}")).await.problem(400, "invalid_request");
    }
}

/// A body of which this has arrived, and no more comes.
fn unfinished(bytes: usize) -> Body {
    let arrived = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b' '; bytes]))]);
    Body::from_stream(arrived.chain(stream::pending()))
}

#[tokio::test(start_paused = true)]
async fn unfinished_bodies_are_bounded_and_small_requests_go_on() {
    let bed = Bed::with_agents().await;
    let path = "/api/agents/approve/message";
    let post = |body| bed.router.clone().oneshot(Request::post(path).body(body).unwrap());
    let most = limits::BODIES_BYTES_MAX / (MIB - limits::BODY_BYTES_FREE);
    let mut arriving: Vec<_> = (0..most).map(|_| tokio::spawn(post(unfinished(MIB)))).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(arriving.iter().all(|request| !request.is_finished()));
    let began = tokio::time::Instant::now();
    let refused = bed.call("POST", path, unfinished(MIB)).await;
    assert!(refused.problem(503, "overloaded").contains("send it again"));
    assert_eq!(Span::from_std(began.elapsed()).rounded(), limits::BODY_ROOM_PATIENCE);
    assert_eq!(refused.headers["retry-after"], "1");
    bed.call("POST", path, r#"{"message": 1}"#).await.is(202);
    // Whoever goes away makes room.
    arriving.swap_remove(0).abort();
    let whole = format!(r#"{{"message": "{}"}}"#, "x".repeat(MIB - 2));
    bed.call("POST", path, whole).await.is(202);
}

/// However small the pieces are in which they come.
#[tokio::test(start_paused = true)]
async fn bodies_that_come_in_pieces_count_whole() {
    let bed = Bed::with_agents().await;
    let path = "/api/agents/approve/message";
    let pieces = || {
        let piece = || Ok::<_, Infallible>(Bytes::from(vec![b' '; limits::BODY_BYTES_FREE]));
        let arrived: Vec<_> = (0..MIB / limits::BODY_BYTES_FREE).map(|_| piece()).collect();
        Body::from_stream(stream::iter(arrived).chain(stream::pending()))
    };
    let post = |body| bed.router.clone().oneshot(Request::post(path).body(body).unwrap());
    let most = limits::BODIES_BYTES_MAX / (MIB - limits::BODY_BYTES_FREE);
    let arriving: Vec<_> = (0..most).map(|_| tokio::spawn(post(pieces()))).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(arriving.iter().all(|request| !request.is_finished()));
    let refused = bed.call("POST", path, pieces()).await;
    assert!(refused.problem(503, "overloaded").contains("large bodies"), "{}", refused.text);
}

#[tokio::test(start_paused = true)]
async fn what_clients_have_not_taken_is_bounded_and_small_answers_go_on() {
    let bed = Bed::new();
    let job = large_job(&bed, 8).await;
    let path = format!("/api/jobs/{job}/events/stream");
    let mut taken = Vec::new();
    loop {
        let mut stream = bed.raw(Request::get(&path).body(Body::empty()).unwrap()).await.into_body().into_data_stream();
        tokio::select! {
            biased;
            chunk = stream.next() => taken.push((chunk.unwrap().unwrap(), stream)),
            () = tokio::time::sleep(Duration::from_secs(5)) => break,
        }
    }
    let bytes: usize = taken.iter().map(|(chunk, _)| chunk.len()).sum();
    assert!(bytes <= limits::ANSWERS_BYTES_MAX && bytes > limits::ANSWERS_BYTES_MAX - 2 * MIB, "{bytes}");
    let began = tokio::time::Instant::now();
    bed.get(&format!("/api/jobs/{job}/events")).await.problem(503, "overloaded");
    assert_eq!(Span::from_std(began.elapsed()).rounded(), limits::ANSWER_PATIENCE);
    bed.get("/livez").await.is(200);
    bed.get(&format!("/api/jobs/{job}")).await.is(200);
    // Those who wait until others have taken theirs keep nobody from a small answer, however many they are.
    let large = || async {
        let reply = bed.get(&format!("/api/jobs/{job}/events")).await;
        assert_eq!(reply.status, 503, "{}", reply.text);
    };
    let waiting =
        futures_util::future::join_all((0..limits::READS_AT_ONCE + limits::ANSWERS_WAITING_MAX).map(|_| large()));
    tokio::pin!(waiting);
    let small = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        bed.get(&format!("/api/jobs/{job}/events?limit=1&after=1")).await.is(200);
    };
    tokio::select! {
        _ = &mut waiting => panic!("a small answer waited for the large ones"),
        () = small => {}
    }
    waiting.await;
    // A stream that waits so long goes on when there is room.
    let mut last = bed.raw(Request::get(&path).body(Body::empty()).unwrap()).await.into_body().into_data_stream();
    let began = tokio::time::Instant::now();
    let (chunk, ()) = tokio::join!(last.next(), async {
        tokio::time::sleep(limits::ANSWER_PATIENCE.to_std() * 2).await;
        taken.pop();
    });
    assert!(chunk.unwrap().unwrap().len() > MIB && began.elapsed() >= limits::ANSWER_PATIENCE.to_std() * 2);
    drop(last);
    bed.get(&format!("/api/jobs/{job}/events")).await.is(200);
}

/// A list of so many small objects, which takes eighty times its text.
fn heavy(items: usize) -> String {
    format!("[{}]", vec![r#"{"a":1}"#; items].join(","))
}

/// A store that is slow with the next writes of a kind: another process holds the lock of its file.
fn bed_of_slow(slow: Purpose, writes: usize) -> Bed {
    let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
    let memory = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let faults = std::iter::repeat_n(Some(Fault::Delay(Span::from_secs(30))), writes);
    let store = FaultyStore::new(memory, FaultPlan::none().script(Op::Commit(slow), faults));
    Bed::on(clock, Arc::new(store), |state| state)
}

#[tokio::test(start_paused = true)]
async fn values_that_wait_for_the_store_are_bounded_in_memory_and_small_ones_go_on() {
    let message = heavy(100_000);
    let room = limits::VALUES_WRITTEN_BYTES_MAX / Json::parse(message.as_bytes()).unwrap().memory();
    assert_eq!(room, 3);
    let bed = bed_of_slow(Purpose::Create, room);
    bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
    let path = "/api/agents/approve/message";
    let large = async || {
        let began = tokio::time::Instant::now();
        let reply = bed.call("POST", path, format!(r#"{{"message": {message}}}"#)).await;
        (reply, Span::from_std(began.elapsed()).rounded())
    };
    let larges = futures_util::future::join_all((0..room + 2).map(|_| large()));
    let small = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = tokio::time::Instant::now();
        bed.call("POST", path, r#"{"message": 1}"#).await.is(202);
        // At once, and not when those before it have got their answers.
        assert_eq!(Span::from_std(began.elapsed()), Span::ZERO);
    };
    let (answers, ()) = tokio::join!(larges, small);
    let (accepted, crowded) = answers.split_at(room);
    for (answer, _) in accepted {
        answer.is(202);
    }
    for (answer, waited) in crowded {
        assert!(answer.problem(503, "overloaded").contains("nothing was done"), "{}", answer.text);
        assert_eq!(*waited, limits::ANSWER_PATIENCE);
    }
    large().await.0.is(202);
}

/// What is written waits for nothing any more.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_jobs_end_holds_no_room_of_its_message() {
    let message = heavy(100_000);
    let room = limits::VALUES_WRITTEN_BYTES_MAX / Json::parse(message.as_bytes()).unwrap().memory();
    let bed = Bed::with_agents().await;
    let large = async |query: &str| {
        let path = format!("/api/agents/approve/message{query}");
        bed.call("POST", &path, format!(r#"{{"message": {message}}}"#)).await
    };
    let waiting = futures_util::future::join_all((0..room).map(|_| large("?wait=40s")));
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        large("").await.is(202);
    };
    let (answers, ()) = tokio::join!(waiting, other);
    for answer in answers {
        answer.is(202);
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_are_written_to_are_bounded_in_memory() {
    let items = heavy(120_000);
    let takes = Json::parse(items.as_bytes()).unwrap().memory();
    let room = limits::JOBS_WRITTEN_BYTES_MAX / takes;
    let bed = bed_of_slow(Purpose::Signal, room);
    bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
    let mut jobs = Vec::new();
    for _ in 0..room + 2 {
        jobs.push(bed.send("approve", &format!(r#"{{"order": 7, "items": {items}}}"#)).await);
        bed.claim().await.wait("ask", "ok-7").await;
    }
    let small = bed.waiting().await;
    let signal = async |job: &str| {
        bed.call("POST", &format!("/api/jobs/{job}/signal"), r#"{"correlation_key": "ok-7", "payload": 1}"#).await
    };
    let larges = futures_util::future::join_all(jobs.iter().map(|job| signal(job)));
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        signal(&small).await.is(200);
    };
    let (answers, ()) = tokio::join!(larges, other);
    let crowded: Vec<usize> = (0..jobs.len()).filter(|n| answers[*n].status != 200).collect();
    assert_eq!(crowded.len(), 2);
    for job in crowded {
        answers[job].problem(503, "overloaded");
        signal(&jobs[job]).await.is(200);
    }
}

/// The first is with the store for longer than the others wait.
#[tokio::test(start_paused = true)]
async fn a_large_job_is_written_to_by_one_at_a_time() {
    let bed = bed_of_slow(Purpose::Signal, 1);
    bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
    let job = bed.send("approve", &format!(r#"{{"order": 7, "items": {}}}"#, heavy(60_000))).await;
    bed.claim().await.wait("ask", "ok-7").await;
    let signal = async || {
        bed.call("POST", &format!("/api/jobs/{job}/signal"), r#"{"correlation_key": "ok-7", "payload": 1}"#).await
    };
    let (first, second) = tokio::join!(signal(), signal());
    first.is(200);
    second.problem(503, "overloaded");
    signal().await.is(200);
}

#[tokio::test]
async fn two_jobs_are_replayed_at_once() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let path = format!("/api/jobs/{job}/replay");
    let ask = async || bed.raw(Request::get(&path).body(Body::empty()).unwrap()).await;
    let mut unread = vec![ask().await, ask().await];
    let refused = bed.get(&path).await;
    refused.problem(429, "rate_limited");
    assert_eq!(refused.headers["retry-after"], "1");
    unread.pop();
    bed.get(&path).await.is(200);
}

#[tokio::test]
async fn a_name_that_is_not_the_servers_own_is_refused() {
    let clock = aetheris_store::system::ManualClock::default();
    let store = std::sync::Arc::new(aetheris_store::memory::MemoryStore::new(std::sync::Arc::new(clock.clone())));
    let bed = Bed::on(clock, store, |mut state| {
        state.hosts = aetheris_server::Hosts::Own(vec!["box.example".to_owned()]);
        state
    });
    let ask = async |host: &str| bed.call_with("GET", "/api/jobs", &[("host", host)], "").await;
    for own in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "box.example"] {
        ask(own).await.is(200);
    }
    bed.get("/api/jobs").await.is(200);
    let said = ask("evil.example:8080").await;
    let detail = said.problem(400, "invalid_request");
    assert!(detail.contains("evil.example") && detail.contains("server.hosts"), "{detail}");
    let long = ask(&"e".repeat(129)).await;
    assert!(long.problem(400, "invalid_request").starts_with(&format!("Host: `{}` is not", "e".repeat(128))));
    for twice in [["evil.example", "localhost"], ["localhost", "evil.example"]] {
        let said = bed.call_with("GET", "/api/jobs", &twice.map(|host| ("host", host)), "").await;
        assert!(said.problem(400, "invalid_request").contains("`evil.example`"), "{}", said.text);
    }
    let headers = [("host", "evil.example"), ("origin", "http://evil.example")];
    bed.call_with("PUT", "/api/agents/approve", &headers, APPROVE).await.problem(400, "invalid_request");
}

/// A body that says how long it is, and comes in pieces.
struct Pieces(Vec<u8>);

impl axum::body::HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        let piece: Vec<u8> = {
            let end = self.0.len().min(4096);
            self.0.drain(..end).collect()
        };
        std::task::Poll::Ready((!piece.is_empty()).then(|| Ok(hyper::body::Frame::data(Bytes::from(piece)))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.len() as u64)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_counts_once_however_it_comes() {
    let bed = Bed::with_agents().await;
    let whole = format!(r#"{{"message": "{}"}}"#, "x".repeat(MIB - 2));
    let body = Body::new(Pieces(whole.into_bytes()));
    bed.call("POST", "/api/agents/approve/message", body).await.is(202);
}

#[tokio::test]
async fn no_page_is_longer_than_it_may_be() {
    let bed = Bed::with_agents().await;
    for n in 0..3 {
        bed.send("pay", &n.to_string()).await;
    }
    let most = limits::PAGE_JOBS_MAX;
    for _ in 3..=most {
        bed.send("pay", "1").await;
    }
    let page = bed.get("/api/jobs?limit=1000000").await;
    assert_eq!(page.is(200)["jobs"].as_array().unwrap().len(), most);
}

/// By default and at most, of every list: what its own words in the document say.
#[tokio::test]
async fn every_page_is_as_long_as_its_document_says() {
    const MOST: usize = 501;
    let bed = Bed::with_agents().await;
    let nodes: String = (0..MOST).map(|n| format!("    - {{ id: n{n}, kind: transform, output: 1 }}\n")).collect();
    bed.call("PUT", "/api/agents/long", format!("agent: long\nplan:\n  nodes:\n{nodes}")).await.is(201);
    let job = bed.send("long", "1").await;
    let hand = bed.claim().await;
    bed.call("PUT", "/api/agents/below", children::CHILD).await.is(201);
    for n in 0..MOST {
        let node = format!("n{n}");
        children::asks(&bed, &hand, &node, false).await;
        hand.finish(&node, Some(1.into())).await;
    }
    children::deliver(&bed).await;
    for n in 0..MOST {
        bed.doubted().await;
        let file = format!("agent: a{n}\nplan:\n  nodes:\n    - {{ id: n, kind: transform, output: 1 }}\n");
        bed.call("PUT", &format!("/api/agents/a{n}"), file).await.is(201);
    }
    let served = bed.get("/api/openapi.json").await;
    let paths = served.is(200)["paths"].as_object().unwrap();
    let mut lists = 0;
    for (path, item) in paths {
        let parameters = item["get"]["parameters"].as_array().into_iter().flatten();
        let Some(limit) = parameters.into_iter().find(|parameter| parameter["name"] == "limit") else { continue };
        let words = limit["description"].as_str().unwrap();
        let numbers: Vec<usize> = words.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        let (default, most) = (numbers[0], *numbers.last().unwrap());
        let path = path.replace("{id}", &job);
        let listed = async |query: &str| {
            let page = bed.get(&format!("{path}{query}")).await;
            let mut fields = page.is(200).as_object().unwrap().values();
            fields.find_map(|field| Some(field.as_array()?.len())).unwrap()
        };
        let all = [listed("").await, listed(&format!("?limit={most}")).await, listed("?limit=100000").await];
        assert_eq!(all, [default, most, most], "{path}");
        lists += 1;
    }
    assert_eq!(lists, 7);
}

/// Whoever finds no place waits for one as long as is said, to the millisecond, whatever the place is for.
#[tokio::test]
async fn whoever_finds_no_place_waits_its_whole_patience() {
    let bed = Bed::with_agents().await;
    let large = large_job(&bed, 8).await;
    let small = bed.send("pay", "1").await;
    let [view, steps, verify, verify_large] = [
        format!("/api/jobs/{small}"),
        format!("/api/jobs/{small}/steps"),
        format!("/api/jobs/{small}/verify"),
        format!("/api/jobs/{large}/verify"),
    ];
    let lists = "/api/jobs".to_owned();
    tokio::time::pause();
    for (question, others, blocking, asked) in [
        ("jobs", limits::READS_AT_ONCE, &lists, "/api/agents"),
        ("jobs", limits::READS_AT_ONCE, &lists, view.as_str()),
        ("glance", limits::STEP_PAGES_AT_ONCE_MAX, &steps, &steps),
        ("timers", limits::REPLAYS_AT_ONCE, &verify, &verify),
        ("history", limits::LARGE_REPLAYS_AT_ONCE, &verify_large, &verify_large),
    ] {
        let (go_on, held) = watch::channel(());
        let waiting = Arc::new(AtomicUsize::new(0));
        let waits = Arc::clone(&waiting);
        let store = Between::then(Arc::clone(&bed.store), move |name| {
            let (mut held, waits) = ((name == question).then(|| held.clone())?, Arc::clone(&waits));
            Some(Box::pin(async move {
                waits.fetch_add(1, Ordering::SeqCst);
                // Its other end is gone.
                held.changed().await.unwrap_err();
            }))
        });
        let bed = Bed::on(bed.clock.clone(), Arc::new(store), |state| state);
        let mut blockers = futures_util::future::join_all((0..others).map(|_| bed.get(blocking)));
        while waiting.load(Ordering::SeqCst) < others {
            assert!(futures_util::poll!(&mut blockers).is_pending());
            tokio::task::yield_now().await;
        }
        let mut refused = std::pin::pin!(bed.get(asked));
        assert!(futures_util::poll!(refused.as_mut()).is_pending());
        tokio::time::advance(limits::ANSWER_PATIENCE.minus(Span::from_millis(1)).to_std()).await;
        assert!(futures_util::poll!(refused.as_mut()).is_pending(), "{asked} behind {blocking}");
        tokio::time::advance(Span::from_millis(2).to_std()).await;
        refused.await.problem(
            if asked == verify { 429 } else { 503 },
            if asked == verify { "rate_limited" } else { "overloaded" },
        );
        drop(go_on);
        for reply in blockers.await {
            reply.is(200);
        }
    }
}

/// Room is for what is larger.
#[tokio::test(start_paused = true)]
async fn an_answer_that_needs_no_room_is_given_where_there_is_none() {
    let bed = Bed::with_agents().await;
    let job = large_job(&bed, 8).await;
    let sized = async |bytes: usize| {
        let path = format!("/api/jobs/{}", bed.send("approve", &format!("{:?}", "x".repeat(15_000))).await);
        let beside = bed.get(&path).await.text.len() - 15_000;
        let job = bed.send("approve", &format!("{:?}", "x".repeat(bytes - beside))).await;
        let path = format!("/api/jobs/{job}");
        assert_eq!(bed.get(&path).await.text.len(), bytes);
        path
    };
    let [free, beyond] = [sized(limits::ANSWER_BYTES_FREE).await, sized(limits::ANSWER_BYTES_FREE + 1).await];
    let path = format!("/api/jobs/{job}/events/stream");
    let mut taken = Vec::new();
    // Until there is no room for so little.
    let rest = loop {
        let mut stream = bed.raw(Request::get(&path).body(Body::empty()).unwrap()).await.into_body().into_data_stream();
        tokio::select! {
            biased;
            chunk = stream.next() => taken.push((chunk.unwrap().unwrap(), stream)),
            () = tokio::time::sleep(Duration::from_secs(5)) => {
                break limits::ANSWERS_BYTES_MAX - taken.iter().map(|(chunk, _)| chunk.len()).sum::<usize>();
            }
        }
    };
    let mut smaller = Vec::new();
    for _ in 0..rest / (limits::ANSWER_BYTES_FREE + 1) {
        smaller.push(bed.raw(Request::get(&beyond).body(Body::empty()).unwrap()).await);
    }
    bed.get(&beyond).await.problem(503, "overloaded");
    bed.get(&free).await.is(200);
}

/// A body that is on its way when the server begins to drain has a moment to arrive.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_arriving_when_the_drain_begins_has_a_moment() {
    let nearly = limits::LAST_BODY_TIME_MAX.minus(Span::from_millis(1));
    for (arrives, status) in [(nearly, 202), (limits::LAST_BODY_TIME_MAX.plus(Span::from_millis(1)), 503)] {
        let bed = Bed::with_agents().await;
        let [first, second] = [r#"{"mess"#, r#"age": 1}"#].map(|part| Ok::<_, Infallible>(Bytes::from(part)));
        let second = stream::once(async move {
            tokio::time::sleep(arrives.to_std()).await;
            second
        });
        let body = Body::from_stream(stream::iter([first]).chain(second));
        let sent = bed.call("POST", "/api/agents/approve/message", body);
        let (sent, ()) = tokio::join!(sent, async { bed.state.closing.cancel() });
        assert_eq!(sent.status, status, "{arrives}: {}", sent.text);
    }
}
