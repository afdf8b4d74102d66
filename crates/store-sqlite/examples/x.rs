#![allow(
    clippy::all,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs,
    reason = "temporary"
)]
use aetheris_core::event::*;
use aetheris_core::id::*;
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::projection::Projection;
use aetheris_core::state::JobState;
use aetheris_core::time::Span;
use aetheris_store::system::System;
use aetheris_store::*;
use aetheris_store_sqlite::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn pct(v: &mut Vec<Duration>, p: f64) -> Duration {
    v.sort();
    v[((v.len() - 1) as f64 * p) as usize]
}
fn rss() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap().lines().find(|l| l.starts_with("VmRSS")).unwrap().to_owned()
}

fn create(sys: &System) -> UnitOfWork {
    let job = JobId::from_u128(sys.ids.ordered());
    let ev = |e: Event| EncodedEvent::new(EventId::from_u128(sys.ids.ordered()), &e);
    let created = Event::from(JobCreated {
        agent: "a".into(),
        agent_version: "1".into(),
        execution_version: "1".into(),
        labels: Default::default(),
        message: Json::new(serde_json::json!({"text":"do it please"})),
        priority: 0,
        run_at: None,
        session: None,
    });
    let first = ev(created.clone());
    let mut state = JobState::new(job);
    state.apply(&created).unwrap();
    let mut u = UnitOfWork::new(first.id, job, Purpose::Create, Guard::Outside);
    u.events = vec![first];
    u.expected_seq = Some(0);
    u.row = Some(Projection::of(&state, true));
    u.create = Some(NewJob {
        agent: "a".into(),
        agent_version: "1".into(),
        client_key: None,
        labels: Default::default(),
        priority: 0,
        session: None,
    });
    u
}

async fn claim(store: &SqliteStore, sys: &System, n: usize, linger: Span) -> Vec<Claimed> {
    let ids = (0..n)
        .map(|_| ClaimIds {
            attempt: AttemptId::from_u128(sys.ids.secret()),
            event: EventId::from_u128(sys.ids.ordered()),
        })
        .collect();
    store
        .claim(ClaimRequest {
            ids,
            instance: InstanceId::from_u128(1),
            linger,
            ttl: Span::from_secs(30),
            worker: "w".into(),
        })
        .await
        .unwrap()
}

async fn steps(store: Arc<SqliteStore>, sys: System, c: Claimed, n: u64) -> Vec<Duration> {
    let mut lat = Vec::new();
    let h = c.history.unwrap();
    let state = JobState::fold(c.job, &h.events).unwrap();
    let mut seq = state.seq;
    for i in 0..n {
        let node = NodeId::new(format!("node{i}"));
        let a = Event::from(NodeStarted { node: node.clone(), number: 1 });
        let b = Event::from(NodeFinished {
            error: None,
            model: None,
            node,
            output: Some(Json::new(serde_json::json!({"n": i, "text": "some small result"}))),
            result: StepResult::Pure,
        });

        let e = EncodedEvent::new(EventId::from_u128(sys.ids.ordered()), &a);
        let f = EncodedEvent::new(EventId::from_u128(sys.ids.ordered()), &b);
        let mut u = UnitOfWork::new(e.id, c.job, Purpose::Record, Guard::Run(c.fence));
        u.expected_seq = Some(seq);
        seq += 2;
        u.events = vec![e, f];
        u.row = Some(Projection::of(&state, true));
        let t = Instant::now();
        store.commit(u).await.unwrap();
        lat.push(t.elapsed());
    }
    lat
}

fn bare(dir: &str) -> Duration {
    let path = format!("{dir}/bare.db");
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_file(format!("{path}-wal"));
    let _ = std::fs::remove_file(format!("{path}-shm"));
    let c = rusqlite::Connection::open(&path).unwrap();
    c.execute_batch("pragma journal_mode=wal; pragma synchronous=full; create table t(id integer primary key, v blob)")
        .unwrap();
    let mut v = Vec::new();
    for _ in 0..3000 {
        let t = Instant::now();
        c.prepare_cached("insert into t(v) values(?1)").unwrap().execute([vec![7u8; 500]]).unwrap();
        v.push(t.elapsed());
    }
    pct(&mut v, 0.5)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let dir = "/work/xbench";
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).unwrap();
    println!("bare {:?}", bare(dir));
    let sys = System::machine();
    let store = Arc::new(SqliteStore::open(SqliteOptions::new(format!("{dir}/a.db"))).unwrap());
    println!("empty {}", rss());
    for round in 0..2 {
        store.commit(create(&sys)).await.unwrap();
        let c = claim(&store, &sys, 1, Span::ZERO).await.pop().unwrap();
        let mut lat = tokio::spawn(steps(store.clone(), sys.clone(), c, 3000)).await.unwrap();
        println!("1 in flight [{round}]: p50 {:?} p99 {:?}", pct(&mut lat, 0.5), pct(&mut lat, 0.99));
    }
    println!("bare {:?}", bare(dir));
    // create -> standing claim
    let mut lat = Vec::new();
    for _ in 0..500 {
        let (s, y) = (store.clone(), sys.clone());
        let h = tokio::spawn(async move {
            claim(&s, &y, 1, Span::from_secs(5)).await;
            Instant::now()
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        let u = create(&sys);
        let t = Instant::now();
        store.commit(u).await.unwrap();
        lat.push(h.await.unwrap() - t);
    }
    println!("create to claimed by standing claim: p50 {:?} p99 {:?}", pct(&mut lat, 0.5), pct(&mut lat, 0.99));
    for n in [32usize, 256] {
        for _ in 0..n {
            store.commit(create(&sys)).await.unwrap();
        }
        let cs = claim(&store, &sys, n, Span::ZERO).await;
        assert_eq!(cs.len(), n);
        let before = store.status().await.unwrap().writer;
        let t = Instant::now();
        let per = 100_000 / n as u64;
        let hs: Vec<_> = cs.into_iter().map(|c| tokio::spawn(steps(store.clone(), sys.clone(), c, per))).collect();
        let mut lat = Vec::new();
        for h in hs {
            lat.extend(h.await.unwrap());
        }
        let d = t.elapsed();
        let a = store.status().await.unwrap().writer;
        println!(
            "{n} in flight: {:.0} units/s, p50 {:?} p99 {:?} max {:?}; units/commit {:.1} bytes/unit {} rows/unit {:.2} {}",
            lat.len() as f64 / d.as_secs_f64(),
            pct(&mut lat, 0.5),
            pct(&mut lat, 0.99),
            pct(&mut lat, 1.0),
            (a.units - before.units) as f64 / (a.commits - before.commits) as f64,
            (a.bytes - before.bytes) / (a.units - before.units),
            (a.rows - before.rows) as f64 / (a.units - before.units) as f64,
            rss()
        );
    }
    // 10-step jobs, created and claimed as they go
    let n = 256usize;
    let t = Instant::now();
    let total = 10_000u64;
    let left = Arc::new(std::sync::atomic::AtomicI64::new(total as i64));
    let mut hs = Vec::new();
    for _ in 0..n {
        let (s, y, left) = (store.clone(), sys.clone(), left.clone());
        hs.push(tokio::spawn(async move {
            while left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 0 {
                s.commit(create(&y)).await.unwrap();
                let c = claim(&s, &y, 1, Span::from_secs(10)).await.pop().unwrap();
                steps(s.clone(), y.clone(), c, 10).await;
            }
        }));
    }
    for h in hs {
        h.await.unwrap();
    }
    println!("jobs of 10 steps at 256: {:.0} steps/s {}", total as f64 * 10.0 / t.elapsed().as_secs_f64(), rss());

    println!(
        "wal {} db {}",
        std::fs::metadata(format!("{dir}/a.db-wal")).unwrap().len(),
        std::fs::metadata(format!("{dir}/a.db")).unwrap().len()
    );
    // starve: another store on the same file while this one is busy
    let other = Arc::new(SqliteStore::open(SqliteOptions::new(format!("{dir}/a.db"))).unwrap());
    for _ in 0..64 {
        store.commit(create(&sys)).await.unwrap();
    }
    let cs = claim(&store, &sys, 64, Span::ZERO).await;
    let busy: Vec<_> = cs.into_iter().map(|c| tokio::spawn(steps(store.clone(), sys.clone(), c, 1000))).collect();
    let mut lat = Vec::new();
    while !busy.iter().all(|b| b.is_finished()) {
        let u = create(&sys);
        let t = Instant::now();
        other.commit(u).await.unwrap();
        lat.push(t.elapsed());
    }
    println!(
        "other store beside a busy one: {} commits, p50 {:?} p99 {:?} max {:?}",
        lat.len(),
        pct(&mut lat, 0.5),
        pct(&mut lat, 0.99),
        pct(&mut lat, 1.0)
    );
    println!(
        "wal {} db {}",
        std::fs::metadata(format!("{dir}/a.db-wal")).unwrap().len(),
        std::fs::metadata(format!("{dir}/a.db")).unwrap().len()
    );
}
