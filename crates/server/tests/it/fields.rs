//! Every field of what is told of one job through its life, where each moment is another: what is filled from the wrong
//! source says something else.

use aetheris_core::event::{
    CommandCommitted, InvocationOutcome, ModelRecord, NodeFinished, Source, StepResult, ToolInvocationFinished, Usage,
};
use aetheris_core::hash::Hash;
use aetheris_core::json::Json;
use aetheris_core::time::Span;
use serde_json::{Value, json};

use crate::bed::{Bed, Hand, finished, started};
use aetheris_store::Scope;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fields.json");

const STORY: &str = r#"
agent: story
version: "7"
description: Pays, asks and tells
deadline: 2h
tools:
  send: { kind: function, function: builtin.echo, version: "2", on_in_doubt: [human] }
plan:
  nodes:
    - { id: send, kind: tool, tool: send, input: { cents: "{{ message }}" } }
    - { id: ask, kind: wait, needs: [send], wait_type: human, correlation_key: ok-8, reason: "Please look", park: true,
        deadline: 24h, schema: { type: boolean } }
    - { id: say, kind: llm, needs: [ask], model: scripted/echo, prompt: "x" }
"#;

/// What is told, of one moment after the other.
struct Told {
    bed: Bed,
    /// What is drawn or hashed, and what stands for it.
    names: Vec<(String, String)>,
    told: Vec<Value>,
}

impl Told {
    /// A second passes.
    fn tick(&self) {
        self.bed.clock.advance(Span::from_secs(1));
    }

    fn name(&mut self, drawn: &impl ToString, name: &str) {
        self.names.push((drawn.to_string(), name.to_owned()));
    }

    async fn claim(&mut self, name: &str) -> Hand {
        let hand = self.bed.claim().await;
        let row = self.bed.store.job(Scope::System, hand.job).await.unwrap().unwrap();
        self.name(&row.holder.unwrap().attempt_id, name);
        self.tick();
        hand
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let reply = self.bed.call("POST", path, body.to_string()).await;
        assert!(reply.status.is_success(), "{}", reply.text);
        self.tick();
        reply.body
    }

    /// Asks these calls, and keeps what they say.
    async fn ask(&mut self, when: &str, paths: &[&str]) {
        for path in paths {
            let reply = self.bed.get(path).await;
            reply.is(200);
            let names = |text: String| self.names.iter().fold(text, |text, (drawn, name)| text.replace(drawn, name));
            let answer: Value = serde_json::from_str(&names(reply.text)).unwrap();
            self.told.push(json!({ "answer": answer, "of": names((*path).to_owned()), "when": when }));
        }
    }
}

/// The tool is called and does not answer, the job is paused, answered, asked, and ends.
async fn story() -> Vec<Value> {
    let mut told = Told { bed: Bed::new(), names: Vec::new(), told: Vec::new() };
    let put = told.bed.call("PUT", "/api/agents/story", STORY).await;
    told.name(&put.is(201)["hash"].as_str().unwrap(), "FILE");
    told.tick();
    let message =
        json!({ "message": 5, "session_id": "s", "priority": 3, "deadline": "1h", "labels": { "team": "a" } });
    let sent = told.post("/api/agents/story/message", message.clone()).await;
    let id = sent["job_id"].as_str().unwrap().to_owned();
    told.name(&id, "JOB");
    let next = told.post("/api/agents/story/message", message).await;
    told.name(&next["job_id"].as_str().unwrap(), "NEXT");
    let job = format!("/api/jobs/{id}");
    let [why, trace, steps, behind] = [
        format!("{job}/why"),
        format!("{job}/trace"),
        format!("{job}/steps?render=true"),
        format!("/api/jobs/{}/why", next["job_id"].as_str().unwrap()),
    ];
    told.post(&format!("{job}/signal"), json!({ "correlation_key": "ok-8", "payload": true })).await;
    let hand = told.claim("FIRST").await;
    let row = told.bed.store.job(Scope::System, hand.job).await.unwrap().unwrap();
    told.name(&row.plan_hash.unwrap(), "PLAN");
    let call = hand.permit("send").await;
    told.name(&call.key, "KEY");
    told.tick();
    told.ask("while it runs", &["/api/agents", "/api/agents/story", "/api/jobs", &job, &why, &behind, &trace]).await;

    hand.lost("send", call).await;
    told.tick();
    told.post(&format!("{job}/pause"), json!({})).await;
    let paused = ["/api/jobs?limit=1&status=paused", "/api/waits", "/api/in-doubt", &job, &why, &trace, &steps];
    told.ask("while it is paused", &paused).await;

    let yes = json!({ "outcome": "happened", "note": "seen", "permit": 1, "result": { "receipt": 3 } });
    told.post(&format!("{job}/in-doubt/{}", call.key), yes).await;
    told.ask("when its doubt is answered", &[&job, &why, &trace]).await;
    told.post(&format!("{job}/resume"), json!({})).await;
    let hand = told.claim("SECOND").await;
    let result_hash = Json::new(json!({ "receipt": 3 })).hash();
    let end = NodeFinished { result: StepResult::SideEffectCommitted, ..finished("send", None) };
    let done = ToolInvocationFinished {
        error: None,
        node: "send".into(),
        outcome: InvocationOutcome::Committed,
        permit: 1,
        source: Source::Resolved,
    };
    hand.push([done.into(), CommandCommitted { node: "send".into(), result_hash }.into(), end.into()]).await;
    told.tick();
    hand.wait("ask", "ok-9").await;
    told.tick();
    told.ask("while it waits", &["/api/waits", &job, &why]).await;

    the_end(&mut told, [&job, &why, &trace, &steps]).await;
    told.told
}

/// Its wait is answered, a model is asked, and it ends.
async fn the_end(told: &mut Told, [job, why, trace, steps]: [&str; 4]) {
    told.post(&format!("{job}/signal"), json!({ "correlation_key": "ok-9", "payload": false })).await;
    told.ask("when its wait has ended", &[job, why, trace]).await;
    let hand = told.claim("THIRD").await;
    hand.finish("ask", None).await;
    told.tick();
    hand.push([started("say").into()]).await;
    told.tick();
    told.ask("while a model is asked", &[job, why]).await;
    let usage = Usage { completion_tokens: 3, prompt_tokens: 9, ..Usage::default() };
    let model = ModelRecord {
        finish: None,
        parameters: None,
        model: "scripted/other".to_owned(),
        prompt_hash: Hash::ZERO,
        usage,
    };
    hand.push([NodeFinished { model: Some(Box::new(model)), ..finished("say", Some("said".into())) }.into()]).await;
    told.tick();
    hand.complete("say").await;
    told.tick();
    told.ask("at its end", &["/api/jobs?status=completed", job, why, trace, steps]).await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "renewing the file is asked for by hand")]
async fn every_field_says_what_it_is_called_through_the_whole_life_of_a_job() {
    let told = format!("{:#}\n", Value::from(story().await));
    if std::env::var("AETHERIS_BLESS").is_ok_and(|yes| yes == "1") {
        std::fs::write(FILE, &told).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    let other = told.lines().zip(kept.lines()).enumerate().find(|(_, (now, kept))| now != kept);
    assert!(
        told == kept,
        "crates/server/tests/it/fields.json differs from what is told, first {other:?}; read the difference and renew \
         it: AETHERIS_BLESS=1 cargo nextest run -p aetheris-server every_field_says"
    );
}
