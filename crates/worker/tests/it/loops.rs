//! Loops: a model and tools by turns.

use std::time::Duration;

use aetheris_core::event::{Event, Failure, Then};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::plan::AnswerFormat;
use aetheris_core::state::{Ending, JobState};
use aetheris_core::step::StepStatus;
use aetheris_runtime::ops::Resolution;
use aetheris_runtime::{ModelRequest, ToolOutcome};
use aetheris_testing::{FakeModels, ModelReply};
use serde_json::{Value, json};

use crate::world::{Act, World, did_not_happen, done, happened, hold, unknown};

const HEAD: &str = "agent: a\nmodel: fake/m\nretry: { max_attempts: 2, backoff: 10ms }\ntools:\n  \
     look: { kind: function, function: f, effect: pure, description: Looks it up, \
             input_schema: { type: object, required: [q], properties: { q: { type: string } } } }\n  \
     pay.out: { kind: function, function: f, effect: at_most_once }\n  \
     tell: { kind: function, function: f, effect: idempotent }\n  \
     secret: { kind: function, function: f, effect: at_most_once }\nplan:\n  nodes:\n";

/// A loop with these keys, and a node behind it.
fn agent(keys: &str) -> String {
    let of_loop = format!(
        "    - {{ id: n, kind: agent, prompt: 'do {{{{ message.what }}}}', tools: [look, pay.out, tell], {keys} }}\n"
    );
    let told = "output: '{{ none if nodes.n.failed else nodes.n.output }}', code: '{{ nodes.n.error.code if nodes.n.failed else none }}'";
    format!("{HEAD}{of_loop}    - {{ id: last, kind: transform, needs: [n], output: {{ {told} }} }}\n")
}

/// A model that says the same whenever it is asked in the same turn; after these it says what the last result was.
fn script(turns: Vec<ModelReply>) -> FakeModels {
    FakeModels::new().rule(move |request: &ModelRequest| {
        let told = request.turns.last().and_then(|turn| turn.calls.last()).map(|call| call.result.clone());
        let last = || ModelReply::text(told.clone().unwrap_or_default());
        Some(turns.get(request.turns.len()).cloned().unwrap_or_else(last).using(70, 30))
    })
}

fn looks(q: &str) -> ModelReply {
    ModelReply::calls("let me see", [("look", json!({ "q": q }))])
}

fn pays(cents: u32) -> ModelReply {
    ModelReply::calls("", [("pay_out", json!({ "cents": cents }))])
}

struct Told {
    job: JobId,
    models: FakeModels,
    world: World,
}

async fn begun(file: &str, turns: Vec<ModelReply>) -> Told {
    let models = script(turns);
    let world = World::asking(&models);
    world.put(file).await;
    let job = world.submit("a", json!({ "what": "it" })).await;
    Told { job, models, world }
}

async fn ended(keys: &str, turns: Vec<ModelReply>) -> (Told, JobState) {
    let told = begun(&agent(keys), turns).await;
    let _process = told.world.start("w");
    let state = told.world.done(told.job).await;
    (told, state)
}

impl Told {
    async fn output(&self) -> Value {
        self.world.result(self.job).await["output"].clone()
    }

    /// What the model was told at last.
    fn last_asked(&self) -> ModelRequest {
        self.models.asked().pop().unwrap()
    }

    /// What calls came to, as the model was told them at last.
    fn results(&self) -> Vec<(String, bool)> {
        let turns = self.last_asked().turns;
        turns.iter().flat_map(|turn| turn.calls.iter().map(|call| (call.result.clone(), call.failed))).collect()
    }

    fn paths_called(&self) -> Vec<String> {
        self.world.tools.calls.lock().unwrap().iter().map(|call| call.node.to_string()).collect()
    }
}

fn error(state: &JobState) -> (String, String) {
    match &state.ending {
        Some(Ending::Failed { error, .. }) => (error.code.clone(), error.message.clone()),
        other => panic!("{other:?}"),
    }
}

fn refused(message: &str) -> ToolOutcome {
    ToolOutcome::RefusedPermanent(Failure::new("refused", message))
}

#[tokio::test(start_paused = true)]
async fn a_model_calls_tools_by_turns_until_it_has_the_last_word() {
    let (told, state) = ended("", vec![looks("x"), pays(5), ModelReply::text("paid")]).await;
    assert_eq!(told.output().await, "paid");
    assert_eq!(told.paths_called(), ["n/0.0", "n/1.0"]);
    assert_eq!(told.results(), [("{\"q\":\"x\"}".to_owned(), false), ("{\"cents\":5}".to_owned(), false)]);
    let asked = told.last_asked();
    assert_eq!((&*asked.prompt, asked.may_call, asked.turns[0].text.as_str()), ("do it", true, "let me see"));
    let offers: Vec<&str> = asked.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(offers, ["look", "pay_out", "tell"], "a tool that the node does not list is not told of");
    assert_eq!(asked.tools[0].description.as_deref(), Some("Looks it up"));
    let paths: Vec<String> = state.steps.keys().map(ToString::to_string).collect();
    assert_eq!(paths, ["last", "n", "n/0", "n/0.0", "n/1", "n/1.0", "n/2"]);
    assert!(state.steps.values().all(|step| step.status == StepStatus::Completed));
    assert_eq!(state.tokens, 300);
    assert_eq!(told.models.count(), 3, "no recorded turn is asked again");
}

#[tokio::test(start_paused = true)]
async fn a_model_without_tools_has_the_last_word_at_once() {
    let file =
        "agent: a\nmodel: fake/m\nplan:\n  nodes:\n    - { id: n, kind: agent, prompt: hello, system: be brief }\n";
    let told = begun(file, vec![ModelReply::text("hi")]).await;
    let _process = told.world.start("w");
    told.world.done(told.job).await;
    assert_eq!(told.world.result(told.job).await, "hi");
    assert_eq!((told.last_asked().system.as_deref(), told.last_asked().tools.len()), (Some("be brief"), 0));
}

/// Whatever a model does wrong it is told, and nothing is called.
#[tokio::test(start_paused = true)]
async fn a_model_is_told_of_its_mistakes() {
    let calls = [
        ("nope", json!({})),
        ("secret", json!({})),
        ("pay.out", json!({})),
        ("look", json!({ "q": 1 })),
        ("look", json!("not json")),
        ("look", json!("[1]")),
    ];
    let (told, state) = ended("", vec![ModelReply::calls("", calls), ModelReply::text("sorry")]).await;
    assert_eq!((told.output().await, told.paths_called().len()), (json!("sorry"), 0));
    let results = told.results();
    assert!(results.iter().all(|(_, failed)| *failed));
    let words: Vec<&str> = results.iter().map(|(told, _)| told.as_str()).collect();
    assert_eq!(words[0], "error: there is no tool `nope`; there are `look`, `pay_out`, `tell` (unknown_tool)");
    assert!(words[1].starts_with("error: there is no tool `secret`"), "what the file does not list is not there");
    assert!(words[2].starts_with("error: there is no tool `pay.out`"), "{}", words[2]);
    assert_eq!(
        words[3],
        "error: the arguments do not fit: /q: this value is not of type \"string\" (invalid_arguments)"
    );
    assert!(words[4].starts_with("error: the arguments are not JSON: "), "{}", words[4]);
    assert_eq!(words[5], "error: the arguments must be a JSON object (invalid_arguments)");
    assert_eq!(state.turns_of(&"n".into()).map(|turns| turns.mistakes), Some(6));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_goes_on_making_mistakes_ends_its_loop() {
    let wrong = || ModelReply::calls("", [("nope", json!({})), ("nope", json!({})), ("nope", json!({}))]);
    let (told, state) = ended("", vec![wrong(), wrong(), wrong(), wrong(), wrong()]).await;
    assert_eq!(error(&state).0, "loop_mistakes");
    assert_eq!(told.models.count(), 4, "twelve of ten");
}

/// A failure that is known to have had no effect is told to the model, once the tool's tries are over.
#[tokio::test(start_paused = true)]
async fn a_model_is_told_of_calls_that_did_not_happen() {
    let told = begun(&agent(""), vec![pays(5), looks("x"), ModelReply::text("over")]).await;
    told.world.tools.next("pay.out", [Act::Say(refused("no money"))]);
    for _ in 0..2 {
        told.world.tools.next("look", [Act::Say(unknown("the line is dead"))]);
    }
    let _process = told.world.start("w");
    let state = told.world.done(told.job).await;
    assert_eq!(told.output().await, "over");
    assert_eq!(
        told.results(),
        [
            ("error: no money (refused)".to_owned(), true),
            // A pure tool has no effect that could be in doubt.
            ("error: the line is dead (connection_lost)".to_owned(), true)
        ]
    );
    assert_eq!(told.paths_called(), ["n/0.0", "n/1.0", "n/1.0"]);
    assert!(state.steps[&"n/0.0".into()].absorbed);
    assert_eq!(state.turns_of(&"n".into()).map(|turns| turns.mistakes), Some(0));
}

/// What nobody knows is never told to a model: the loop waits for what becomes known.
#[tokio::test(start_paused = true)]
async fn a_call_in_doubt_makes_the_loop_wait() {
    for (answer, result, calls) in [
        (happened(1, aetheris_core::json::Json::new(json!("paid by hand"))), "paid by hand", 1),
        (did_not_happen(1), "{\"cents\":5}", 2),
        (
            Resolution { then: Then::Fail, ..did_not_happen(1) },
            "error: the call of `pay.out` did not happen: a person said so (did_not_happen)",
            1,
        ),
    ] {
        let told = begun(&agent(""), vec![pays(5)]).await;
        told.world.tools.next("pay.out", [Act::Say(unknown("no answer"))]);
        let _process = told.world.start("w");
        let waiting = told.world.until(told.job, &[JobStatus::Parked]).await;
        assert_eq!((waiting.step_status(&"n/0.0".into()), told.models.count()), (StepStatus::InDoubt, 1));
        tokio::time::sleep(Duration::from_secs(600)).await;
        let key = waiting.steps[&"n/0.0".into()].invocation.as_deref().unwrap().key;
        told.world.rt.resolve(told.job, key, answer).await.unwrap();
        let state = told.world.done(told.job).await;
        assert_eq!(state.status, JobStatus::Completed);
        assert_eq!((told.results()[0].0.as_str(), told.paths_called().len(), told.models.count()), (result, calls, 2));
    }
}

/// Neither is a call that nobody could settle, nor one of whose tries one may have had its effect.
#[tokio::test(start_paused = true)]
async fn a_call_that_may_have_happened_ends_the_loop() {
    let fails = HEAD.replace("pay.out: { kind: function,", "pay.out: { on_in_doubt: fail, kind: function,");
    let file = agent("").replace(HEAD, &fails);
    let told = begun(&file, vec![pays(5)]).await;
    told.world.tools.next("pay.out", [Act::Say(unknown("no answer"))]);
    let _process = told.world.start("w");
    let state = told.world.done(told.job).await;
    assert_eq!(error(&state).0, "in_doubt_unresolved");
    assert!(error(&state).1.starts_with("call `n/0.0` of `pay.out`: "), "{}", error(&state).1);
    assert_eq!(told.models.count(), 1);

    let told = begun(&agent(""), vec![ModelReply::calls("", [("tell", json!({}))])]).await;
    told.world.tools.next("tell", [Act::Say(unknown("no answer"))]);
    told.world.tools.next("tell", [Act::Say(refused("seen that before"))]);
    let _process = told.world.start("w");
    let state = told.world.done(told.job).await;
    let words = "call `n/0.0` of `tell` may have had its effect: seen that before (refused)";
    assert_eq!(error(&state), ("in_doubt_unresolved".to_owned(), words.to_owned()), "the first try may have told");
    assert_eq!(told.models.count(), 1);
}

/// Calls of one turn run beside each other up to the bound, and are told in the order in which they were asked for.
#[tokio::test(start_paused = true)]
async fn calls_of_a_turn_run_up_to_their_bound() {
    for (bound, most) in [(1, 1), (2, 2), (8, 3)] {
        let calls = || ModelReply::calls("", ["a", "b", "c"].map(|q| ("look", json!({ "q": q }))));
        let told = begun(&agent(&format!("parallel_tool_calls: {bound}")), vec![calls()]).await;
        let mut releases = Vec::new();
        for place in 0..3 {
            let (act, reached, release) = hold(done(json!(place)));
            told.world.tools.next("look", [act]);
            releases.push((reached, release));
        }
        let _process = told.world.start("w");
        releases[most - 1].0.notified().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(told.paths_called().len(), most, "{bound} at once");
        for (_, release) in releases.iter().rev() {
            release.notify_one();
        }
        told.world.done(told.job).await;
        let told_of: Vec<String> = told.results().into_iter().map(|(result, _)| result).collect();
        assert_eq!(told_of, ["0", "1", "2"]);
    }
}

/// Nothing of a turn is asked or called again by whoever takes the job over.
#[tokio::test(start_paused = true)]
async fn whoever_takes_over_goes_on_with_the_recorded_conversation() {
    let told = begun(&agent(""), vec![looks("x"), pays(5), looks("y"), ModelReply::text("done")]).await;
    let (act, reached, _release) = hold(done(json!("seen")));
    told.world.tools.next("look", [Act::Say(done(json!("first")))]);
    told.world.tools.next("look", [act]);
    let first = told.world.start("w1");
    reached.notified().await;
    first.kill();
    let _second = told.world.start("w2");
    told.world.done(told.job).await;
    assert_eq!(told.output().await, "done");
    assert_eq!(told.models.count(), 4);
    // A pure call whose result was not recorded is made again, and nothing else.
    assert_eq!(told.paths_called(), ["n/0.0", "n/1.0", "n/2.0", "n/2.0"]);
    let results: Vec<String> = told.results().into_iter().map(|(result, _)| result).collect();
    assert_eq!(results, ["first", "{\"cents\":5}", "{\"q\":\"y\"}"]);
}

/// A crash over a call that must not be repeated leaves a doubt, and the model is not told.
#[tokio::test(start_paused = true)]
async fn a_crash_over_a_call_is_a_doubt() {
    let told = begun(&agent(""), vec![pays(5), ModelReply::text("done")]).await;
    let (act, reached, _release) = hold(done(json!("never heard")));
    told.world.tools.next("pay.out", [act]);
    let first = told.world.start("w1");
    reached.notified().await;
    first.kill();
    let _second = told.world.start("w2");
    let parked = told.world.until(told.job, &[JobStatus::Parked]).await;
    assert_eq!((parked.step_status(&"n/0.0".into()), told.models.count()), (StepStatus::InDoubt, 1));
    assert_eq!(told.paths_called(), ["n/0.0"]);
    let key = parked.steps[&"n/0.0".into()].invocation.as_deref().unwrap().key;
    told.world.rt.resolve(told.job, key, happened(1, aetheris_core::json::Json::new(json!("it went")))).await.unwrap();
    told.world.done(told.job).await;
    assert_eq!((told.results(), told.models.count()), (vec![("it went".to_owned(), false)], 2));
}

#[tokio::test(start_paused = true)]
async fn a_last_word_fits_its_schema() {
    let schema = "schema: { type: object, required: [n], properties: { n: { type: integer } } }";
    let said =
        vec![ModelReply::text("well"), ModelReply::text("{\"n\":\"1\"}"), ModelReply::text("```json\n{\"n\": 1}\n```")];
    let (told, state) = ended(schema, said).await;
    assert_eq!((told.output().await, told.models.count(), state.steps.len()), (json!({ "n": 1 }), 3, 5));
    let asked = told.last_asked();
    assert_eq!(asked.format, AnswerFormat::Json);
    let replies: Vec<&str> = asked.turns.iter().filter_map(|turn| turn.reply.as_deref()).collect();
    assert!(
        replies[0].starts_with("the answer must be JSON alone, with no text before or after it: "),
        "{}",
        replies[0]
    );
    assert_eq!(replies[1], "your answer does not fit: /n: this value is not of type \"integer\"");
    assert!(asked.system.unwrap().contains("\"required\":[\"n\"]"));
}

#[tokio::test(start_paused = true)]
async fn a_loop_ends_at_its_limit() {
    let for_ever = || (0..9).map(|q| looks(&q.to_string())).collect::<Vec<ModelReply>>();
    for (keys, asked, words) in [
        (
            "max_turns: 3",
            3,
            "the loop used its 3 turns without a final answer; raise `max_turns` or `max_tokens`, or set `on_limit: answer`",
        ),
        (
            "max_tokens: 150",
            2,
            "the loop used 200 of 150 tokens without a final answer; raise `max_turns` or `max_tokens`, or set `on_limit: answer`",
        ),
    ] {
        let (told, state) = ended(keys, for_ever()).await;
        assert_eq!(error(&state), ("loop_limit".to_owned(), words.to_owned()));
        assert_eq!(told.models.count(), asked);
    }
    for (keys, asked) in [("max_turns: 3, on_limit: answer", 4), ("max_tokens: 150, on_limit: answer", 3)] {
        let mut turns = for_ever();
        turns[asked - 1] = ModelReply::text("as far as I came");
        let (told, _) = ended(keys, turns).await;
        assert_eq!((told.output().await, told.models.count()), (json!("as far as I came"), asked));
        let last = told.last_asked();
        assert!(!last.may_call && !last.tools.is_empty());
        assert_eq!(
            last.turns.last().unwrap().reply.as_deref(),
            Some("No further tool call is possible. Answer now with what you know.")
        );
        // One that calls all the same is asked again, and then its loop fails.
        let (told, state) = ended(keys, for_ever()).await;
        assert_eq!((error(&state).0.as_str(), told.models.count()), ("model_called_tool", asked + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn budgets_of_the_job_bound_its_loops() {
    let with =
        |budget: &str| agent("on_failure: fail_safe").replace("tools:\n", &format!("budget: {budget}\ntools:\n"));
    for (budget, calls, asked) in [("{ max_tool_calls: 1 }", 1, 2), ("{ max_tokens: 150 }", 2, 2)] {
        let told = begun(&with(budget), vec![looks("a"), looks("b"), looks("c")]).await;
        let _process = told.world.start("w");
        let state = told.world.done(told.job).await;
        assert_eq!(error(&state).0, "budget_exceeded", "{budget}: it is the job's, whatever the node says");
        assert_eq!((told.paths_called().len(), told.models.count()), (calls, asked), "{budget}");
    }
}

/// A loop whose failure is absorbed leaves nothing open.
#[tokio::test(start_paused = true)]
async fn the_failure_of_a_loop_is_its_nodes() {
    let fails = || ModelReply::refused("cannot");
    let (told, state) = ended("on_failure: fail_safe", vec![looks("x"), fails()]).await;
    assert_eq!(state.status, JobStatus::Completed);
    assert_eq!(told.world.result(told.job).await["code"], "model_refused");
    let (_, state) = ended("", vec![fails()]).await;
    assert_eq!(error(&state), ("model_refused".to_owned(), "turn 0: cannot".to_owned()));
}

/// Calls beside one that ends the loop are given up: what must not be repeated is awaited, and known.
#[tokio::test(start_paused = true)]
async fn calls_beside_a_lost_one_are_given_up() {
    let both = ModelReply::calls("", [("tell", json!({})), ("pay_out", json!({})), ("look", json!({ "q": "z" }))]);
    let told =
        begun(&agent("parallel_tool_calls: 2, on_failure: fail_safe, retry: { max_attempts: 1 }"), vec![both]).await;
    let (act, reached, release) = hold(done(json!("paid")));
    told.world.tools.next("tell", [Act::Say(unknown("no answer"))]);
    told.world.tools.next("pay.out", [act]);
    let _process = told.world.start("w");
    tokio::select! {
        () = reached.notified() => {}
        () = tokio::time::sleep(Duration::from_secs(600)) => panic!("the second call does not leave"),
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    release.notify_one();
    let state = told.world.done(told.job).await;
    assert_eq!(state.status, JobStatus::Completed);
    assert_eq!(state.step_status(&"n/0.1".into()), StepStatus::Completed);
    assert_eq!(state.step_status(&"n/0.2".into()), StepStatus::Pending, "no other call begins");
    assert_eq!(told.world.result(told.job).await["code"], "in_doubt_unresolved");
}

/// A call that may be made again is given up beside one that ends the loop, and says so.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_beside_a_lost_one_names_it() {
    let both = ModelReply::calls("", [("tell", json!({})), ("look", json!({ "q": "z" }))]);
    let told =
        begun(&agent("parallel_tool_calls: 2, on_failure: fail_safe, retry: { max_attempts: 1 }"), vec![both]).await;
    let (act, reached, _release) = hold(done(json!({ "found": 1 })));
    let (lost, asked, answers) = hold(unknown("no answer"));
    told.world.tools.next("tell", [lost]);
    told.world.tools.next("look", [act]);
    let _process = told.world.start("w");
    reached.notified().await;
    asked.notified().await;
    answers.notify_one();
    let state = told.world.done(told.job).await;
    let error = state.steps[&"n/0.1".into()].error.as_ref().unwrap();
    assert_eq!((error.code.as_str(), error.message.as_str()), ("loop_stopped", "given up because `n/0.0` failed"));
}

/// Prompts draw their values once for the whole loop.
#[tokio::test(start_paused = true)]
async fn a_loop_asks_with_one_prompt() {
    let file = agent("").replace("do {{ message.what }}", "{{ uuid() }} {{ now() }}");
    let told = begun(&file, vec![looks("x"), looks("y")]).await;
    let first = told.world.start("w1");
    told.world.done(told.job).await;
    first.kill();
    let prompts: Vec<String> = told.models.asked().into_iter().map(|request| request.prompt).collect();
    assert_eq!(prompts.len(), 3);
    assert!(prompts.iter().all(|prompt| *prompt == prompts[0] && prompt.len() > 40), "{prompts:?}");
    let recorded = |event: &Event| match event {
        Event::ValueRecorded(e) => Some(e.node.to_string()),
        _ => None,
    };
    let of: Vec<String> = told.world.events(told.job).await.iter().filter_map(recorded).collect();
    assert_eq!(of, ["n", "n"]);
}

/// A rejected last word of a node that is judged begins the loop anew, as a round.
#[tokio::test(start_paused = true)]
async fn a_judged_loop_begins_anew_with_the_feedback() {
    let file = agent("validate: { const: good }, max_refines: 2")
        .replace("do {{ message.what }}", "{{ round }}: {{ feedback }}")
        .replace("tools: [look, pay.out, tell]", "tools: [look]");
    let models = FakeModels::new().rule(|request: &ModelRequest| {
        let second = request.prompt.starts_with('1');
        Some(match (request.turns.len(), second) {
            (0, _) => looks(&request.prompt),
            (_, false) => ModelReply::text("bad"),
            (_, true) => ModelReply::text("good"),
        })
    });
    let world = World::asking(&models);
    world.put(&file).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!(world.result(job).await["output"], "good");
    let paths: Vec<String> = state.steps.keys().map(ToString::to_string).collect();
    assert_eq!(paths, ["last", "n", "n/0", "n/0.0", "n/1", "n@1", "n@1/0", "n@1/0.0", "n@1/1"]);
    let prompts: Vec<String> = models.asked().into_iter().map(|request| request.prompt).collect();
    assert!(prompts[2].starts_with("1: ") && prompts[2].len() > 3, "{prompts:?}");
}

/// Loops for the items of a map: each has turns and calls of its own.
#[tokio::test(start_paused = true)]
async fn loops_are_done_for_each_item_of_a_map() {
    for (concurrency, fails) in [(1, false), (3, false), (3, true)] {
        let work = "{ kind: agent, prompt: '{{ item }}', tools: [look], parallel_tool_calls: 2 }";
        let node = format!(
            "    - {{ id: n, kind: map, over: [a, b, c], concurrency: {concurrency}, on_item_failure: collect, do: {work} }}\n"
        );
        let models = FakeModels::new().rule(move |request: &ModelRequest| {
            let prompt = request.prompt.clone();
            Some(match request.turns.len() {
                1 if fails && prompt == "b" => ModelReply::refused("no more"),
                0 => ModelReply::calls("", [("look", json!({ "q": prompt })), ("look", json!({ "q": "both" }))]),
                _ => ModelReply::text(request.turns[0].calls[0].result.clone()),
            })
        });
        let world = World::asking(&models);
        world.put(&format!("{HEAD}{node}")).await;
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        let result = world.result(job).await;
        assert_eq!(result[0]["output"], "{\"q\":\"a\"}", "{state:?}");
        assert_eq!(result[1]["ok"], !fails);
        assert_eq!(result[2]["output"], "{\"q\":\"c\"}");
        assert_eq!(world.tools.calls.lock().unwrap().len(), 6);
    }
}

/// With `stop`, a failed loop ends its map, and the loops beside it are given up.
#[tokio::test(start_paused = true)]
async fn a_lost_loop_ends_its_map() {
    let work = "{ kind: agent, prompt: '{{ item }}', tools: [pay.out] }";
    let node = format!("    - {{ id: n, kind: map, over: [a, b, c], concurrency: 2, do: {work} }}\n");
    let models = FakeModels::new().rule(move |request: &ModelRequest| {
        Some(match &*request.prompt {
            "b" => ModelReply::refused("no").after(Duration::from_millis(100)),
            _ => ModelReply::calls("", [("pay_out", json!({}))]),
        })
    });
    let world = World::asking(&models);
    world.put(&format!("{HEAD}{node}")).await;
    let (act, reached, release) = hold(done(json!("paid")));
    world.tools.next("pay.out", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    release.notify_one();
    let state = world.done(job).await;
    assert_eq!(error(&state), ("model_refused".to_owned(), "item 1: turn 0: no".to_owned()));
    assert_eq!(state.step_status(&"n[0]/0.0".into()), StepStatus::Completed);
    assert_eq!(state.step_status(&"n[0]".into()), StepStatus::Failed);
    assert_eq!(state.step_status(&"n[2]".into()), StepStatus::Pending);
}

/// A model that gives no answer is asked again as its node says, and what it used counts.
#[tokio::test(start_paused = true)]
async fn a_turn_is_tried_again() {
    let models = FakeModels::new().in_turn([
        ModelReply::overloaded("later"),
        ModelReply::calls("", (0..65).map(|_| ("look", json!({ "q": "x" })))),
    ]);
    let world = World::asking(&models);
    world.put(&agent("")).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({ "what": "it" })).await;
    let state = world.done(job).await;
    assert_eq!(error(&state).0, "too_many_tool_calls");
    assert_eq!((models.count(), world.tools.calls.lock().unwrap().len()), (2, 0));
    assert_eq!(state.turns_of(&"n".into()).map(|turns| turns.tokens), Some(state.tokens));
}

/// A loop that fails ends its own calls and nobody else's.
#[tokio::test(start_paused = true)]
async fn the_calls_of_other_loops_do_not_hear_of_the_end_of_one() {
    let work =
        "{ kind: agent, prompt: '{{ item }}', tools: [tell], parallel_tool_calls: 2, retry: { max_attempts: 1 } }";
    let node =
        format!("    - {{ id: n, kind: map, over: [a, b], concurrency: 2, on_item_failure: collect, do: {work} }}\n");
    let models = FakeModels::new().rule(|request: &ModelRequest| {
        let calls = if request.prompt == "a" { 1 } else { 2 };
        Some(match request.turns.len() {
            0 => ModelReply::calls("", (0..calls).map(|_| ("tell", json!({})))),
            _ => ModelReply::text("over"),
        })
    });
    let world = World::asking(&models);
    world.put(&format!("{HEAD}{node}")).await;
    let (of_a, reached, release) = hold(done(json!("told")));
    let (beside, beside_reached, _never) = hold(done(json!("never")));
    world.tools.next("tell", [of_a, Act::After(Duration::from_secs(1), unknown("no answer")), beside]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    beside_reached.notified().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    release.notify_one();
    let state = world.done(job).await;
    let called: Vec<String> = world.tools.calls.lock().unwrap().iter().map(|call| call.node.to_string()).collect();
    assert_eq!(called, ["n[0]/0.0", "n[1]/0.0", "n[1]/0.1"]);
    let result = world.result(job).await;
    assert_eq!((&result[0]["output"], &result[1]["error"]["code"]), (&json!("over"), &json!("in_doubt_unresolved")));
    assert!(state.steps[&"n[1]/0.1".into()].given_up && !state.steps[&"n[1]".into()].given_up);
}

/// Once a part of an item's loop has failed with which the map ends, no call of another item leaves.
#[tokio::test(start_paused = true)]
async fn a_map_ends_with_the_call_that_ends_the_loop_of_an_item() {
    let work = "{ kind: agent, prompt: '{{ item }}', tools: [tell, look], retry: { max_attempts: 1 } }";
    let node = format!(
        "    - {{ id: n, kind: map, over: [a, b], concurrency: 2, do: {work}, on_failure: fail_safe }}\n    \
         - {{ id: last, kind: transform, needs: [n], output: '{{{{ nodes.n.error.message }}}}' }}\n"
    );
    let models = FakeModels::new().rule(|request: &ModelRequest| {
        let tool = if request.prompt == "a" { "tell" } else { "look" };
        Some(ModelReply::calls("", [(tool, json!({ "q": "x" }))]).after(Duration::from_millis(5)))
    });
    let world = World::asking(&models);
    world.put(&format!("{HEAD}{node}")).await;
    world.tools.next("tell", [Act::Say(unknown("no answer"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    let state = world.done(job).await;
    assert_eq!(
        world.result(job).await,
        "item 0: call `n[0]/0.0` of `tell` may have had its effect: no answer (connection_lost)"
    );
    assert!(state.steps[&"n[1]".into()].given_up && !state.steps[&"n[0]".into()].given_up);
}

/// Each asks the budget behind the judging of its arguments, when the others have used up what was left.
#[tokio::test(start_paused = true)]
async fn calls_of_one_turn_do_not_pass_the_budget_together() {
    let file =
        agent("parallel_tool_calls: 4").replace("tools:\n  look", "budget: { max_tool_calls: 2 }\ntools:\n  look");
    let calls = ModelReply::calls("", ["a", "b", "c", "d"].map(|q| ("look", json!({ "q": q }))));
    let told = begun(&file, vec![calls]).await;
    let _process = told.world.start("w");
    let state = told.world.done(told.job).await;
    assert_eq!((error(&state).0.as_str(), told.paths_called().len()), ("budget_exceeded", 2));
}

/// What is sent beside the conversation is what the file says.
#[tokio::test(start_paused = true)]
async fn the_keys_of_a_loop_are_sent() {
    let (told, _) =
        ended("max_answer_tokens: 77, system: 'for {{ message.what }}'", vec![ModelReply::text("so")]).await;
    let asked = told.last_asked();
    assert_eq!(
        (asked.max_tokens, asked.system.as_deref(), asked.format),
        (Some(77), Some("for it"), AnswerFormat::Text)
    );
}

/// Once the tries of a turn have used up the loop's tokens it is not asked again.
#[tokio::test(start_paused = true)]
async fn the_tries_of_a_turn_count_for_its_loop() {
    let many = || ModelReply::calls("", (0..65).map(|_| ("look", json!({ "q": "x" }))));
    let (told, state) = ended("max_tokens: 50, retry: { max_attempts: 5 }", vec![many()]).await;
    assert_eq!((error(&state).0.as_str(), told.models.count()), ("loop_limit", 1));
    let (told, state) = ended("max_tokens: 150, retry: { max_attempts: 5 }", vec![many()]).await;
    assert_eq!((error(&state).0.as_str(), told.models.count()), ("loop_limit", 2));
}

#[tokio::test(start_paused = true)]
async fn a_long_result_is_cut_and_a_long_conversation_is_not_sent() {
    let told = begun(&agent(""), vec![looks("x"), ModelReply::text("over")]).await;
    told.world.tools.next("look", [Act::Say(done(json!("x".repeat(300_000))))]);
    let _process = told.world.start("w");
    told.world.done(told.job).await;
    let result = told.results()[0].0.clone();
    assert!(result.ends_with("\n[cut: 300000 bytes in all]") && result.len() < 270_000, "{}", result.len());
    let calls = || ModelReply::calls("", (0..20).map(|_| ("look", json!({ "q": "x" }))));
    let told = begun(&agent(""), vec![calls(), calls()]).await;
    for _ in 0..40 {
        told.world.tools.next("look", [Act::Say(done(json!("x".repeat(300_000))))]);
    }
    let _process = told.world.start("w");
    let state = told.world.done(told.job).await;
    assert_eq!((error(&state).0.as_str(), told.models.count()), ("conversation_too_long", 2));
}

/// Why a last word was not taken is not forgotten when the loop is asked for one that is to be its last.
#[tokio::test(start_paused = true)]
async fn a_last_question_says_what_was_wrong_before() {
    let keys = "max_turns: 1, on_limit: answer, schema: { type: integer }";
    let (told, state) = ended(keys, vec![ModelReply::text("\"no\""), ModelReply::text("\"nor this\"")]).await;
    let reply = told.last_asked().turns[0].reply.clone().unwrap();
    assert!(reply.starts_with("your answer does not fit: ") && reply.ends_with("what you know."), "{reply}");
    assert_eq!(told.last_asked().format, AnswerFormat::Text, "no object is asked for");
    let (code, message) = error(&state);
    assert_eq!(code, "loop_limit");
    assert!(
        message.starts_with("the loop used its 1 turns, and its final answer was not accepted: your answer"),
        "{message}"
    );
}

/// Whatever a model calls its calls, each has a name of its own.
#[tokio::test(start_paused = true)]
async fn every_call_has_a_name_of_its_own() {
    use aetheris_core::event::ToolAsked;
    let call = |id: &str| ToolAsked {
        arguments: "{\"q\":\"x\"}".to_owned(),
        id: id.to_owned(),
        name: "look".to_owned(),
        provider: None,
        tool: None,
    };
    let ids = ["a", "a", "", "functions.look:0", "call_0_1"].map(call);
    let (told, _) =
        ended("", vec![ModelReply::asking(ids.to_vec()), ModelReply::asking(vec![call("a"), call("b")])]).await;
    let turns = told.last_asked().turns;
    let ids: Vec<&str> = turns.iter().flat_map(|turn| turn.calls.iter().map(|call| call.asked.id.as_str())).collect();
    assert_eq!(ids, ["a", "call_0_1", "call_0_2", "call_0_3", "call_0_4", "call_1_0", "b"]);
}

/// An answer of nothing is no last word.
#[tokio::test(start_paused = true)]
async fn a_model_that_says_nothing_is_asked_again() {
    let models = FakeModels::new().in_turn([ModelReply::text(" "), ModelReply::text("there")]);
    let world = World::asking(&models);
    world.put(&agent("")).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({ "what": "it" })).await;
    world.done(job).await;
    assert_eq!((world.result(job).await["output"].clone(), models.count()), (json!("there"), 2));
}

/// What may be dropped of a loop is, once its map has failed with another item: nobody waits for a call that nobody needs.
#[tokio::test(start_paused = true)]
async fn a_map_that_has_failed_waits_for_no_call_that_may_be_dropped() {
    let work = "{ kind: agent, prompt: '{{ item }}', tools: [look], retry: { max_attempts: 1 } }";
    let node = format!(
        "    - {{ id: n, kind: map, over: [a, b], concurrency: 2, do: {work}, on_failure: fail_safe }}\n    \
         - {{ id: last, kind: transform, needs: [n], output: '{{{{ nodes.n.error.code }}}}' }}\n"
    );
    let models = FakeModels::new().rule(|request: &ModelRequest| {
        Some(match &*request.prompt {
            "b" => ModelReply::refused("no").after(Duration::from_secs(1)),
            _ => looks("x"),
        })
    });
    let world = World::asking(&models);
    world.put(&format!("{HEAD}{node}")).await;
    let (act, reached, _never) = hold(done(json!("never")));
    world.tools.next("look", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    let state = world.done(job).await;
    assert_eq!(world.result(job).await, "model_refused", "{:?}", state.ending);
    assert!(state.steps[&"n[0]/0.0".into()].given_up);
    assert!(world.passed() < Duration::from_secs(5), "it waited for the call of the other item: {:?}", world.passed());
}
