use std::sync::Arc;
use std::time::Duration;

use aetheris_core::id::AttemptId;
use aetheris_core::limits;
use aetheris_store::bus::Delta;
use aetheris_store::faulty::{FaultPlan, FaultyStore};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::ManualClock;
use axum::body::Body;
use axum::http::Request;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::bed::{APPROVE, Bed};
use crate::between::Between;

#[tokio::test]
async fn events_come_in_pages_as_they_are_stored() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let all = bed.get(&format!("/api/jobs/{job}/events")).await;
    let events = all.is(200)["events"].as_array().unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["job_created", "plan_generated", "job_claimed", "node_started", "job_waiting", "timer_set"]);
    assert!(all.body["next_after"].is_null());
    assert_eq!((events[0]["epoch"].as_u64(), events[5]["epoch"].as_u64()), (Some(0), Some(1)));
    assert_eq!(events[0]["payload"]["message"]["order"], 7);
    assert_eq!(events[0]["hash"].as_str().unwrap().len(), 64);

    let page = bed.get(&format!("/api/jobs/{job}/events?after=1&limit=2")).await;
    assert_eq!(page.is(200)["next_after"], 3);
    assert_eq!(page.body["events"].as_array().unwrap()[..], events[1..3]);
}

/// Wherever a page ends, also one event before the last, its reader comes to all that follows.
#[tokio::test]
async fn pages_of_any_size_are_together_all_the_events() {
    let bed = Bed::with_agents().await;
    let path = format!("/api/jobs/{}/events", bed.waiting().await);
    let all = bed.get(&path).await.is(200)["events"].as_array().unwrap().clone();
    for limit in 1..=all.len() {
        let (mut read, mut after) = (Vec::new(), Some(0));
        while let Some(place) = after {
            let page = bed.get(&format!("{path}?limit={limit}&after={place}")).await;
            read.extend(page.is(200)["events"].as_array().unwrap().iter().cloned());
            after = page.body["next_after"].as_u64();
        }
        assert_eq!(read, all, "{limit}");
    }
}

/// Reads a stream until it ends, or until so many events are there.
async fn read(bed: &Bed, path: &str, header: Option<&str>, most: usize) -> (Vec<(u64, String, Value)>, bool) {
    let mut request = Request::get(path);
    if let Some(last) = header {
        request = request.header("Last-Event-ID", last);
    }
    let response = bed.raw(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body().into_data_stream();
    let mut text = String::new();
    while let Some(chunk) = body.next().await {
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        if parse(&text).len() >= most {
            return (parse(&text), false);
        }
    }
    (parse(&text), true)
}

fn parse(text: &str) -> Vec<(u64, String, Value)> {
    let blocks = text.split("\n\n").filter(|block| block.starts_with("id: "));
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {block}")).to_owned()
    };
    let event = |block| {
        let data = serde_json::from_str(&field(block, "data: ")).unwrap();
        (field(block, "id: ").parse().unwrap(), field(block, "event: "), data)
    };
    blocks.map(event).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stream_replays_then_follows_and_ends_with_the_job() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let path = format!("/api/jobs/{job}/events/stream");
    let life = async {
        let pause = || tokio::time::sleep(Duration::from_millis(50));
        pause().await;
        let signal = r#"{"correlation_key": "ok-7", "payload": null}"#;
        bed.call("POST", &format!("/api/jobs/{job}/signal"), signal).await.is(200);
        let hand = bed.claim().await;
        pause().await;
        hand.finish("ask", None).await;
        hand.run("tell", 1.into()).await;
        pause().await;
        hand.complete("tell").await;
    };
    let ((whole, whole_ended), (tail, tail_ended), ()) =
        tokio::join!(read(&bed, &path, None, usize::MAX), read(&bed, &path, Some("4"), usize::MAX), life);
    assert!(whole_ended && tail_ended);
    let last = whole.last().unwrap();
    assert_eq!(last.1, "job_completed");
    assert_eq!(whole.iter().map(|event| event.0).collect::<Vec<_>>(), (1..=last.0).collect::<Vec<_>>());
    assert_eq!(tail, whole[4..]);
    assert!(whole.iter().all(|(seq, kind, data)| data["seq"] == *seq && data["type"] == *kind));

    let (after, _) = read(&bed, &format!("{path}?after=8"), None, usize::MAX).await;
    assert_eq!(after, whole[8..]);
    let (header_wins, _) = read(&bed, &format!("{path}?after=1"), Some("8"), usize::MAX).await;
    assert_eq!(header_wins, after);
    let (nothing, ended) = read(&bed, &format!("{path}?after=1000"), None, usize::MAX).await;
    assert!(nothing.is_empty() && ended);
}

#[tokio::test(start_paused = true)]
async fn no_event_is_missed_or_told_twice_however_writes_fall() {
    for writes_before in 0..6 {
        let bed = Bed::new();
        let nodes: String = (0..6).map(|n| format!("    - {{ id: n{n}, kind: transform, output: 1 }}\n")).collect();
        bed.call("PUT", "/api/agents/six", format!("agent: six\nplan:\n  nodes:\n{nodes}")).await.is(201);
        let job = bed.send("six", "1").await;
        let hand = bed.claim().await;
        for n in 0..writes_before {
            hand.run(&format!("n{n}"), n.into()).await;
        }
        let path = format!("/api/jobs/{job}/events/stream");
        let ((events, ended), ()) = tokio::join!(read(&bed, &path, None, usize::MAX), async {
            for n in writes_before..6 {
                tokio::task::yield_now().await;
                hand.run(&format!("n{n}"), n.into()).await;
            }
            hand.complete("n5").await;
        });
        assert!(ended);
        assert_eq!(events.iter().map(|event| event.0).collect::<Vec<_>>(), (1..=16).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_says_that_it_is_there_and_ends_with_the_server() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let path = format!("/api/jobs/{job}/events/stream?after=100");
    let response = bed.raw(Request::get(path).body(Body::empty()).unwrap()).await;
    let mut body = response.into_body().into_data_stream();
    let began = tokio::time::Instant::now();
    let said = body.next().await.unwrap().unwrap();
    assert!(said.starts_with(b":") && said.ends_with(b"\n\n"));
    assert_eq!(began.elapsed().as_secs(), 15);
    bed.state.closing.cancel();
    assert!(body.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn followers_are_bounded_and_free_their_place() {
    let bed = Bed::few_connections(8).await;
    let job = bed.send("approve", "1").await;
    let path = format!("/api/jobs/{job}/events/stream");
    let open = async || bed.raw(Request::get(&path).body(Body::empty()).unwrap()).await;
    let mut streams = Vec::new();
    // Half of the connections are for everybody else.
    for _ in 0..4 {
        streams.push(open().await);
    }
    // Its status first: the text of one that is accepted has no end.
    assert_eq!(open().await.status(), 503);
    let refused = bed.get(&path).await;
    refused.problem(503, "overloaded");
    assert_eq!(refused.headers["retry-after"], "1");
    bed.get(&format!("/api/jobs/{job}?wait=1s")).await.problem(503, "overloaded");
    // Refused before the job is made: whoever sends it again makes one.
    let sent = bed.call("POST", "/api/agents/approve/message?wait=1s", r#"{"message": {"order": "2"}}"#).await;
    sent.problem(503, "overloaded");
    assert_eq!(bed.get("/api/jobs").await.is(200)["jobs"].as_array().unwrap().len(), 1);
    streams.pop();
    assert_eq!(open().await.status(), 200);
}

#[tokio::test]
async fn a_wrong_place_is_refused() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let path = format!("/api/jobs/{job}/events/stream");
    for place in ["x", "", "-1", "9223372036854775808"] {
        bed.call_with("GET", &path, &[("Last-Event-ID", place)], "").await.problem(400, "invalid_request");
    }
    bed.get(&format!("{path}?after=x")).await.problem(400, "invalid_request");
}

/// More events than one look at the store brings.
#[tokio::test(start_paused = true)]
async fn a_long_history_is_streamed_whole() {
    let bed = Bed::new();
    let nodes: String = (0..40).map(|n| format!("    - {{ id: n{n}, kind: transform, output: 1 }}\n")).collect();
    bed.call("PUT", "/api/agents/long", format!("agent: long\nplan:\n  nodes:\n{nodes}")).await.is(201);
    let job = bed.send("long", "1").await;
    let hand = bed.claim().await;
    for n in 0..40 {
        hand.run(&format!("n{n}"), n.into()).await;
    }
    hand.complete("n39").await;
    let (events, ended) = read(&bed, &format!("/api/jobs/{job}/events/stream"), None, usize::MAX).await;
    assert!(ended);
    assert_eq!(events.iter().map(|event| event.0).collect::<Vec<_>>(), (1..=84).collect::<Vec<_>>());
    // A page has a hundred where nobody asks for another number.
    let page = bed.get(&format!("/api/jobs/{job}/events")).await;
    assert_eq!((page.is(200)["events"].as_array().unwrap().len(), &page.body["next_after"]), (84, &Value::Null));
}

/// No hint comes from another process: polls and streams look again, and soon.
#[tokio::test(start_paused = true)]
async fn what_another_process_writes_is_found_by_looking_again() {
    let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
    let memory = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let bed = Bed::on(clock, Arc::new(FaultyStore::new(memory, FaultPlan::none()).apart()), |state| state);
    bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
    let job = bed.send("approve", "1").await;
    let began = tokio::time::Instant::now();
    let polled = async {
        let reply = bed.get(&format!("/api/jobs/{job}?wait=20s")).await;
        (reply.is(200)["status"].clone(), began.elapsed())
    };
    let path = format!("/api/jobs/{job}/events/stream");
    let streamed = async { (read(&bed, &path, None, usize::MAX).await, began.elapsed()) };
    let cancelled = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.is(202);
    };
    let ((status, polled), ((events, ended), streamed), ()) = tokio::join!(polled, streamed, cancelled);
    assert_eq!((status, ended, events.last().unwrap().1.as_str()), ("cancelled".into(), true, "job_cancelled"));
    assert!(polled <= limits::POLL_RELOOK.to_std() * 2, "{polled:?}");
    assert!(streamed <= limits::STREAM_RELOOK.to_std() * 2, "{streamed:?}");
}

/// What is answered after the end is written behind it, and no part of what a follower waits for.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_event_that_ends_the_job_whatever_comes_behind_it() {
    let bed = Bed::with_agents().await;
    let (job, key) = bed.doubted().await;
    bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.is(202);
    let yes = r#"{"outcome": "happened", "note": "seen", "permit": 1}"#;
    bed.call("POST", &format!("/api/jobs/{job}/in-doubt/{key}"), yes).await.is(202);
    let (events, ended) = read(&bed, &format!("/api/jobs/{job}/events/stream"), None, usize::MAX).await;
    assert_eq!((events.last().unwrap().1.as_str(), ended), ("job_cancelled", true));
    // Whoever has seen the end and comes back is told what was written since, and no more.
    let end = events.last().unwrap().0.to_string();
    let (behind, ended) = read(&bed, &format!("/api/jobs/{job}/events/stream"), Some(&end), usize::MAX).await;
    let kinds: Vec<_> = behind.iter().map(|event| event.1.as_str()).collect();
    assert!(ended && kinds.contains(&"in_doubt_resolved"), "{kinds:?}");
}

/// What this process writes is told at once, and its end as well: looking again is for what others write.
#[tokio::test(start_paused = true)]
async fn whoever_follows_hears_at_once_of_an_event_and_of_the_end_of_the_server() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let [stream, poll] = [format!("/api/jobs/{job}/events/stream?after=1"), format!("/api/jobs/{job}?wait=20s")];
    let moment = Duration::from_millis(20);
    let mut body = bed.raw(Request::get(&stream).body(Body::empty()).unwrap()).await.into_body().into_data_stream();
    let planned = body.next().await.unwrap().unwrap();
    assert!(planned.starts_with(b"id: 2\n"), "{planned:?}");
    let began = tokio::time::Instant::now();
    let (told, ()) = tokio::join!(body.next(), async {
        tokio::time::sleep(moment).await;
        bed.call("POST", &format!("/api/jobs/{job}/pause"), "").await.is(202);
    });
    assert!(told.unwrap().unwrap().starts_with(b"id: 3\nevent: job_paused\n"));
    assert_eq!(began.elapsed().as_millis(), moment.as_millis());
    let began = tokio::time::Instant::now();
    let (polled, streamed, ()) = tokio::join!(bed.get(&poll), body.next(), async {
        tokio::time::sleep(moment).await;
        bed.state.closing.cancel();
    });
    assert_eq!((&polled.is(200)["status"], streamed.is_none()), (&"paused".into(), true));
    assert_eq!(began.elapsed().as_millis(), moment.as_millis());
}

/// A stream that finds no place, or no room for what it has to say, goes on when there is some.
#[tokio::test(start_paused = true)]
async fn a_stream_outlasts_a_time_without_places() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let (go_on, held) = watch::channel(());
    let store = Between::then(Arc::clone(&bed.store), move |name| {
        let mut held = (name == "jobs").then(|| held.clone())?;
        // Its other end is gone.
        Some(Box::pin(async move { held.changed().await.unwrap_err() }.map(drop)))
    });
    let bed = Bed::on(bed.clock.clone(), Arc::new(store), |state| state);
    let others = futures_util::future::join_all((0..limits::READS_AT_ONCE).map(|_| bed.get("/api/jobs")));
    let path = format!("/api/jobs/{job}/events/stream");
    let streamed = async {
        // Behind the others.
        tokio::time::sleep(Duration::from_millis(1)).await;
        read(&bed, &path, None, 2).await
    };
    let later = async {
        tokio::time::sleep(limits::ANSWER_PATIENCE.to_std() * 2).await;
        drop(go_on);
    };
    let (_, (events, _), ()) = tokio::join!(others, streamed, later);
    assert_eq!(events.iter().map(|event| event.0).collect::<Vec<_>>(), [1, 2]);
}

/// What a model says is heard as it comes, beside the facts and never instead of them: without a place, before the step's end,
/// and what comes of one step at once in one.
#[tokio::test(start_paused = true)]
async fn a_stream_brings_what_models_say() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let other = bed.send("approve", "1").await;
    let path = format!("/api/jobs/{job}/events/stream?after=2");
    let attempt = AttemptId::from_u128(7);
    let say = |job: &str, path: &str, from: u64, text: &str| {
        let delta = || Delta { attempt, from, path: path.into(), text: text.to_owned() };
        bed.store.bus().said(job.parse().unwrap(), || Some(delta()));
    };
    say(&job, "early", 0, "nobody listens yet");
    let mut body = bed.raw(Request::get(&path).body(Body::empty()).unwrap()).await.into_body().into_data_stream();
    say(&job, "tell", 0, "Gr");
    say(&other, "tell", 0, "of another job");
    say(&job, "tell", 2, "üß\n");
    say(&job, "tell", 5, "e");
    say(&job, "n/2", 0, "1");
    say(&job, "tell", 0, "again");
    bed.call("POST", &format!("/api/jobs/{job}/pause"), "").await.is(202);
    let told = body.next().await.unwrap().unwrap();
    let messages: Vec<Value> = std::str::from_utf8(&told)
        .unwrap()
        .split_terminator("\n\n")
        .map(|message| serde_json::from_str(message.strip_prefix("event: delta\ndata: ").unwrap()).unwrap())
        .collect();
    let delta = |path: &str, from: u64, text: &str| json!({ "attempt": attempt.to_string(), "from": from, "path": path, "text": text });
    assert_eq!(messages, [delta("tell", 0, "Grüß\ne"), delta("n/2", 0, "1"), delta("tell", 0, "again")]);
    let fact = body.next().await.unwrap().unwrap();
    assert!(fact.starts_with(b"id: 3\nevent: job_paused\n"), "{fact:?}");
    // Whoever is far behind loses the oldest pieces, and nothing else.
    for from in 0..2 * u64::try_from(limits::DELTAS_HELD_MAX).unwrap() {
        say(&job, "tell", from, "x");
    }
    let told = body.next().await.unwrap().unwrap();
    let first: Value =
        serde_json::from_slice(told.strip_prefix(b"event: delta\ndata: ").unwrap().trim_ascii_end()).unwrap();
    assert_eq!((&first["from"], first["text"].as_str().map(str::len)), (&json!(256), Some(256)));
    // However much models say, facts come between.
    for text in ["y".repeat(200_000), "z".to_owned()] {
        say(&job, "loud", 0, &text);
    }
    bed.call("POST", &format!("/api/jobs/{job}/resume"), "").await.is(202);
    assert!(body.next().await.unwrap().unwrap().starts_with(b"id: 4\n"));
    assert!(body.next().await.unwrap().unwrap().starts_with(b"event: delta\n"));
}

/// Two models that speak at once are told apart, also where the place of the one is that at which the other has stopped.
#[tokio::test]
async fn pieces_of_two_steps_are_never_one() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", "1").await;
    let path = format!("/api/jobs/{job}/events/stream?after=2");
    let attempt = AttemptId::from_u128(7);
    let mut body = bed.raw(Request::get(&path).body(Body::empty()).unwrap()).await.into_body().into_data_stream();
    for (step, from, text) in [("a", 0, "ab"), ("b", 2, "cd"), ("a", 2, "ef")] {
        let delta = || Delta { attempt, from, path: step.into(), text: text.to_owned() };
        bed.store.bus().said(job.parse().unwrap(), || Some(delta()));
    }
    let told = body.next().await.unwrap().unwrap();
    let told: Vec<Value> = std::str::from_utf8(&told)
        .unwrap()
        .split_terminator("\n\n")
        .map(|message| serde_json::from_str(message.strip_prefix("event: delta\ndata: ").unwrap()).unwrap())
        .map(|delta: Value| json!([delta["path"], delta["from"], delta["text"]]))
        .collect();
    assert_eq!(told, [json!(["a", 0, "ab"]), json!(["b", 2, "cd"]), json!(["a", 2, "ef"])]);
}
