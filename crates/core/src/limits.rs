//! Every bound of the runtime in one file. Hitting one is a named error, never a retry.

use crate::time::Span;

/// Largest canonical payload of one event, message, tool input or result, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Deepest nesting of a JSON value that is accepted.
pub const JSON_DEPTH_MAX: usize = 64;
/// Largest agent file, in bytes.
pub const AGENT_FILE_BYTES_MAX: usize = 1024 * 1024;
/// Most nodes in one plan.
pub const PLAN_NODES_MAX: usize = 10_000;

/// The most steps of one job that run beside each other, items of maps among them.
pub const PARALLEL_STEPS_MAX: usize = 256;
/// Most values of chance that the templates of one step ask for.
pub const DRAWN_VALUES_MAX: usize = 1_000;
/// Largest `max_refines`: how often the work of a step is done again.
pub const REFINES_MAX: u32 = 20;
/// Most turns of one loop.
pub const LOOP_TURNS_MAX: u32 = 200;
/// Turns of a loop that does not say how many.
pub const LOOP_TURNS_DEFAULT: u32 = 20;
/// Most calls that one turn of a loop may ask for, and most that run beside each other.
pub const TURN_CALLS_MAX: usize = 64;
/// Most calls of one loop that are refused because its model named no tool of it, or gave arguments that do not fit. One more ends
/// the loop.
pub const LOOP_MISTAKES_MAX: u32 = 10;
/// Most bytes of a result that a model is told; more is cut, and said to be.
pub const RESULT_TOLD_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of a conversation that is sent with the next question.
pub const CONVERSATION_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes of what models are told of one tool: providers take as many.
pub const TOOL_DESCRIPTION_BYTES_MAX: usize = 1_024;
/// `max_refines` of a node that does not say.
pub const REFINES_DEFAULT: u32 = 3;
/// Most bytes of the feedback that a round is given.
pub const FEEDBACK_BYTES_MAX: usize = 16 * 1024;
/// Most jobs above a child job.
pub const CHILD_DEPTH_MAX: u32 = 8;
/// Most child jobs of one job, those of items of its maps among them.
pub const CHILDREN_MAX: u32 = 10_000;
/// Most child jobs of one job that are not those of items.
pub const CHILDREN_OF_NODES_MAX: u32 = 1_000;
/// Most children whose ends one unit tells their parent.
pub const CHILDREN_TOLD_MAX: usize = 64;
/// Most items of one map.
pub const MAP_ITEMS_MAX: usize = 10_000;
/// Most tools in one agent.
pub const AGENT_TOOLS_MAX: usize = 1_000;
/// Longest name of an agent, tool or node, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest correlation key after rendering, in characters: what a schema's `maxLength` counts. UTF-8 has at
/// most four bytes for each.
pub const CORRELATION_KEY_CHARS_MAX: usize = 512;
/// Longest client idempotency key, in bytes; over HTTP it is visible ASCII.
pub const CLIENT_KEY_BYTES_MAX: usize = 256;
/// Most labels of a job.
pub const LABELS_MAX: usize = 32;
/// Longest label key or value and longest session name, in characters.
pub const LABEL_CHARS_MAX: usize = 128;
/// The characters that end a label's key where one is asked for, as in `team:billing`: no key has one.
pub const LABEL_SEPARATORS: [char; 2] = [':', '='];
/// Most events of one job.
pub const JOB_EVENTS_MAX: u64 = 100_000;
/// Most memory of the values that one job keeps (its message, the inputs of its calls, its outputs and kept signals), in
/// bytes as [`crate::json::Json::memory`] has them: whoever goes on with the job has them all. No step starts beyond it,
/// so that it is exceeded by the inputs and outputs of the steps under way at most ([`PARALLEL_STEPS_MAX`]), and by the list
/// of what one map came to, which stands beside its items once it has ended.
pub const JOB_MEMORY_MAX: usize = 512 * 1024 * 1024;
/// Turns of a job that follow each other without other tasks of the thread having had theirs.
pub const TURNS_AT_ONCE: usize = 8;
/// Most events of one unit of work: it has room for an end that tells of each call under way ([`PARALLEL_STEPS_MAX`]) beside
/// all that may be unwritten ([`UNWRITTEN_EVENTS_MAX`]).
pub const UNIT_EVENTS_MAX: usize = 448;
/// Most events of a job that are drafted before they are written.
pub const UNWRITTEN_EVENTS_MAX: usize = 128;
/// Most memory of the outputs that a run gathers while a unit of its job is being written, in bytes; then it waits for
/// that. A crash repeats the functions that gave them.
pub const UNWRITTEN_BYTES_MAX: usize = 1024 * 1024;
/// Most signals kept for waits that a job has not reached.
pub const KEPT_SIGNALS_MAX: usize = 1_000;
/// Most of them with one key: the first that fits ends the wait, and each that does not is an event.
pub const KEPT_SIGNALS_OF_KEY_MAX: usize = 16;
/// Most bytes of their payloads: every look at the job brings them all.
pub const KEPT_SIGNAL_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most memory of their payloads, likewise.
pub const KEPT_SIGNAL_MEMORY_MAX: usize = 128 * 1024 * 1024;
/// Most waits one job may open.
pub const JOB_WAITS_MAX: usize = 10_000;
/// Plans that a model may be asked for of one job, of an agent that does not say.
pub const PLAN_ATTEMPTS_DEFAULT: u32 = 3;
/// The most that an agent may say.
pub const PLAN_ATTEMPTS_MAX: u32 = 20;
/// Nodes of a plan that a model makes, of an agent that does not say.
pub const PLANNED_NODES_DEFAULT: u32 = 50;
/// Most rules of an agent.
pub const RULES_MAX: usize = 100;
/// Most tries of one step that a policy may ask for.
pub const RETRY_ATTEMPTS_MAX: u32 = 100;
/// Longest back-off between two tries.
pub const BACKOFF_MAX: Span = Span::from_secs(24 * 3600);
/// Longest timeout, deadline or sleep.
pub const SPAN_MAX: Span = Span::from_secs(10 * 365 * 24 * 3600);
/// Work of one template or condition, in the template engine's units.
pub const TEMPLATE_FUEL: u64 = 50_000;
/// Work of all templates of one value together, in the same units: a value is rendered between two points at
/// which other jobs of the thread go on, so that this, and not the number of its texts, is how long they wait.
pub const VALUE_FUEL: u64 = 4 * TEMPLATE_FUEL;
/// Work that a thread which serves others does between two of them, in the same units: whatever takes more is done
/// beside them.
pub const MOMENT_FUEL: u64 = 1_000;
/// Longest template or condition, in bytes.
pub const TEMPLATE_BYTES_MAX: usize = 64 * 1024;
/// Largest text a template may render, in bytes.
pub const TEMPLATE_OUTPUT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;
/// Largest JSON Schema in an agent file, in bytes of canonical JSON.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Most subschemas and listed values of one schema with its references followed: one part of a value may be asked
/// about each of them.
pub const SCHEMA_PARTS_MAX: usize = 10_000;
/// Most patterns of one schema, each of which counts by the time that it takes to compile; most count 1.
pub const SCHEMA_PATTERNS_MAX: usize = 100;
/// Most patterns of the schemas of one agent file together, counted likewise.
pub const AGENT_PATTERNS_MAX: usize = 1_000;
/// Largest compiled pattern, in bytes; backwards it may take as much again.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 256 * 1024;
/// Memory that all matchers of a schema hold while a long text is judged by it, in bytes, as it is estimated.
pub const SCHEMA_WALKING_BYTES_MAX: usize = 96 * 1024 * 1024;
/// Parts of a value times parts of a schema, beyond which the value is not judged: about half a second's work.
pub const SCHEMA_WORK_MAX: usize = 10_000_000;
/// Bytes of a value's texts times bytes of a schema's compiled patterns, beyond which it is not judged: about half a
/// second's work where each pattern has to be walked state by state.
pub const SCHEMA_PATTERN_WORK_MAX: usize = 4_000_000_000;
/// Values whose judging may take long that are judged at the same time.
pub const JUDGED_AT_ONCE: usize = 1;
/// Parts of a value times parts of a schema, beyond which only that it does not fit is said, and not where.
pub const SCHEMA_DETAIL_WORK_MAX: usize = 100_000;
/// Memory of the compiled plans that a process keeps, in bytes, as it is estimated: five of the largest, or thousands of
/// usual ones.
pub const PLANS_KEPT_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Memory of the compiled schemas that a process keeps, in bytes, as it is estimated.
pub const SCHEMAS_KEPT_BYTES_MAX: usize = 96 * 1024 * 1024;
/// Parsed agents that a store keeps for whoever asks again: what their values take in memory, in bytes. Beyond it, those
/// that nobody has asked for longest are read again.
pub const AGENTS_KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Agent files that one process reads at the same time: the schemas of each may take tens of MiB for a moment.
pub const AGENT_FILES_AT_ONCE: usize = 2;
/// Schemas of running jobs that are compiled at the same time.
pub const COMPILED_AT_ONCE: usize = 1;
/// Most mistakes that are said of one value or schema.
pub const SCHEMA_VIOLATIONS_MAX: usize = 20;
/// Bytes of all of them together, beyond which the rest is left out: they are recorded with the value's refusal.
pub const SCHEMA_VIOLATIONS_BYTES_MAX: usize = 16 * 1024;
/// Longest error message that is kept, in bytes.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 2 * 1024;
/// Longest path of a place in a file or value that a mistake names, in bytes.
pub const FILE_PATH_BYTES_MAX: usize = 512;
/// Bytes of all mistakes that are said of one agent file, beyond which the rest is left out.
pub const FILE_ERRORS_BYTES_MAX: usize = 128 * 1024;
/// Longest reason of a wait that is kept, in bytes: it is in every list that the job is in.
pub const WAIT_REASON_BYTES_MAX: usize = 4 * 1024;
/// Most of a model's words that an error quotes, in characters: enough to see what went wrong.
pub const MODEL_WORDS_QUOTED_MAX: usize = 500;
/// Longest note an operator may leave, in characters.
pub const NOTE_CHARS_MAX: usize = 4 * 1024;

/// A text of at most so many bytes, of which the last three say that it goes on where it did.
#[must_use]
pub fn cut(mut text: String, most: usize) -> String {
    const GOES_ON: char = '…';
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(GOES_ON.len_utf8())));
        text.push(GOES_ON);
    }
    text
}

/// Whether a text has more characters than `most`; a text of very many bytes is not counted to its end.
#[must_use]
pub fn is_longer(text: &str, most: usize) -> bool {
    text.chars().nth(most).is_some()
}

/// Reclaims in a row in which no node finished, after which a job fails as poison.
pub const RECLAIMS_WITHOUT_PROGRESS_MAX: u32 = 3;
/// A back-off up to this holds its slot; a longer one releases the job.
pub const BACKOFF_HELD_MAX: Span = Span::from_millis(500);
/// A checkpoint is written when this many events were appended since the last one.
pub const CHECKPOINT_EVENTS: u64 = 512;
/// Bytes of a checkpoint for each of which an event has to follow before the next one is written: about those of an event.
pub const CHECKPOINT_BYTES_PER_EVENT: usize = 512;
/// Largest checkpoint, in bytes: a larger state is not kept and its job is folded from further back. Writing it holds
/// up the transactions of every other job, and a database takes no value of a gigabyte.
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How often the ledger may refuse one call in one run: each time someone has settled it in between.
pub const LEDGER_REFUSALS_MAX: u32 = 8;
/// How often the deposit of a known outcome is tried while the store fails: with the pause between two tries, ten
/// minutes; longer where its large job has to be waited for. A second request to stop ends it.
pub const DEPOSIT_TRIES_MAX: u32 = 6_000;
/// How often a run may find that a signal is kept for the wait that it begins and that it did not see: each wait of
/// the job may race with one.
pub const KEPT_SIGNALS_MET_MAX: u32 = 10_000;
/// How long a call waits that could not leave because this process alone lacked something, before it is tried again;
/// doubled each time,
pub const OWN_WANT_PAUSE: Span = Span::from_secs(1);
/// so often: up to 32 seconds.
pub const OWN_WANT_DOUBLINGS_MAX: u32 = 5;
/// A question that waits for its provider is looked at again after this part of the time since its step began, at the earliest,
pub const RATE_WAITED_SHARE: u64 = 16;
/// but for this long at most: some 3,000 events in a day.
pub const RATE_PAUSE_MAX: Span = Span::from_secs(60);
/// Longest time that a question waits for its provider's rate before the job is looked at again.
pub const RATE_WAIT_MAX: Span = Span::from_secs(300);
/// Longest piece of a model's answer that followers of a job hear; a longer one is cut in several. Pieces that wait for a
/// follower are sent in one, up to about so many bytes.
pub const DELTA_BYTES_MAX: usize = 4_096;
/// About how many bytes of them are sent before the job is looked at again.
pub const DELTAS_SENT_BYTES_MAX: usize = 64 * 1024;
/// Pieces of models' answers that a follower of a job may be behind; older ones are lost to it.
pub const DELTAS_HELD_MAX: usize = 256;
/// A plain step that runs longer than this has its start written while it runs, so that people see it.
pub const START_SHOWN_AFTER: Span = Span::from_millis(100);
/// How often a write that failed for want of the store is sent again while the lease lasts, once the worker is
/// to stop: with the pause between two of them, five seconds.
pub const DRAINING_WRITES_MAX: u32 = 50;
/// Lines of the log that wait to be written, up to some kilobytes each; further ones are dropped and counted.
pub const LOG_LINES_WAITING_MAX: usize = 4_096;
/// Longest line of the log, in bytes.
pub const LOG_LINE_BYTES_MAX: usize = 64 * 1024;
/// Time the last lines of the log have to be written when the process ends.
pub const LOG_LAST_WORDS_MAX: Span = Span::from_secs(1);

/// Lives of a store that a restore leaves out where nothing says how many there were since the backup: a fence must not be
/// given out twice, and nobody restores so often.
pub const GENERATIONS_SKIPPED: u32 = 1_000;
/// Pages of one piece of a backup: 4 MiB.
pub const BACKUP_STEP_PAGES: i32 = 1_024;
/// Times in a row that a backup finds the database locked before it gives up, 20 ms apart.
pub const BACKUP_WAITS_MAX: u32 = 500;
/// Jobs that a restore holds at once.
pub const RESTORE_HOLDS_MAX: usize = 64;
/// Jobs, or agents, of one page of a list.
pub const PAGE_JOBS_MAX: usize = 500;
/// Pages of agents that a process looks through at its start for those that it cannot run.
pub const START_AGENT_PAGES_MAX: usize = 8;
/// Bytes of one page of a list after which it ends: with the row that reaches them. Counted are the parts of a row that
/// others decide and that may be large: files, schemas, and the memory of calls' inputs and late evidence.
pub const PAGE_ROWS_BYTES_MAX: usize = 1024 * 1024;
/// Kept signals of a job that are shown: the first ones.
pub const KEPT_SHOWN_MAX: usize = 100;
/// Calls in doubt that the command line reads for one list, page by page.
pub const DOUBTS_LISTED_MAX: usize = 10_000;
/// Jobs of which a check reads everything at once.
pub const DOSSIERS_MAX: usize = 64;
/// Bytes after which such a reading ends behind the job that has reached them.
pub const DOSSIERS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Steps of one page of values: each may have to be rendered.
pub const PAGE_STEPS_MAX: usize = 200;
/// Bytes of values in one page of steps; the page ends with the step that exceeds it.
pub const PAGE_VALUES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a step's value that are shown where nobody asks for more.
pub const VALUE_SHOWN_BYTES: usize = 2 * 1024;
/// Pages of steps that are made at once: rendering takes a processor.
pub const STEP_PAGES_AT_ONCE_MAX: usize = 2;
/// Events of one page.
pub const PAGE_EVENTS_MAX: usize = 1_000;
/// Bytes of payloads after which a page of events ends: with the event that reaches them, so that a page has
/// less than this and one payload.
pub const PAGE_EVENTS_BYTES_MAX: usize = 1024 * 1024;
/// Units of work that may wait for a store's writer.
pub const WRITER_QUEUE_MAX: usize = 4_096;
/// Units of work in one database transaction.
pub const WRITER_BATCH_MAX: usize = 512;
/// Events of a history that a look at a job reads and parses where it is asked for; more are read by a thread of
/// its own, because whoever asks may be a thread that serves everybody.
pub const LOOK_EVENTS_MAX: u64 = 256;
/// Bytes of such a history.
pub const LOOK_BYTES_MAX: usize = 256 * 1024;
/// Events of a history that comes with a claim, inside the transaction that writes.
pub const CLAIM_EVENTS_MAX: u64 = 64;
/// Rows one sweep of timers or expired leases handles at a time.
pub const SWEEP_ROWS_MAX: usize = 256;
/// How long a sweep leaves a row alone that could not be fired or taken back; doubled each time.
pub const SWEEP_BACKOFF: Span = Span::from_secs(1);
/// The longest that a sweep leaves such a row alone.
pub const SWEEP_BACKOFF_MAX: Span = Span::from_secs(60);
/// How long a text that is met again and again is not logged again.
pub const REPEAT_AFTER: Span = Span::from_secs(60);
/// Different texts within [`REPEAT_AFTER`] that a process logs of what it meets again and again; of further ones it says
/// nothing.
pub const REPEATS_KEPT_MAX: usize = 256;
/// Most bytes of what should be an id of such a row that are told.
pub const UNREADABLE_ID_BYTES_TOLD: usize = 32;
/// Rows that failed of which one sweep knows when to try them again, 100 bytes each; beyond, they are tried at
/// every pass.
pub const SWEEP_FAILED_MAX: usize = 10_000;
/// Jobs one claim may take.
pub const CLAIM_JOBS_MAX: usize = 512;
/// Slots of one worker.
pub const WORKER_SLOTS_MAX: usize = 4_096;
/// Live processes of one database that listen at once.
pub const LISTENERS_MAX: usize = 1_024;
/// How often a process that listens looks whether what it says of itself still stands.
pub const LISTENERS_LOOK: Span = Span::from_secs(1);
/// How long nothing is called after the folder of the listening processes was made anew: longer than each of them takes to
/// notice.
pub const LISTENERS_SETTLE: Span = Span::from_secs(3);
/// Of a server's connections, those that follow jobs (event streams, long polls) are at most one part in so many: they
/// never give way, and whoever asks whether the server is alive must find a place.
pub const FOLLOWERS_PART: usize = 2;
/// Times a write whose expected sequence has moved is folded again and retried.
pub const CONFLICT_RETRIES_MAX: u32 = 64;
/// How much longer than two of its pauses a loop may take to come round before readiness says so: it may wait for
/// a busy store.
pub const PULSE_GRACE: Span = Span::from_secs(15);
/// How long a worker waits for the database that a server makes, where both are started at once.
pub const DATABASE_PATIENCE: Span = Span::from_secs(10);
/// How long readiness waits for the store's writer before it says that it is silent.
pub const HEALTH_PATIENCE: Span = Span::from_secs(2);
/// The room that a disk which was full must have again before it counts as having any, in bytes: a few of the largest
/// units.
pub const ROOM_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// See [`ROOM_BYTES_MIN`]: of a small disk, one part in so many is enough.
pub const ROOM_PART_MIN: u64 = 16;
/// How far the store's clock may be ahead of the wall clock before readiness says so: more than two looks at
/// two clocks differ by.
pub const CLOCK_AHEAD_TOLD: Span = Span::from_secs(1);
/// A step forward of the wall clock against the boot clock that a store believes at once; a longer one has to stand.
pub const CLOCK_STEP_MAX: Span = Span::from_secs(60);
/// How long, by the boot clock.
pub const CLOCK_STEP_STANDS: Span = Span::from_secs(10);
/// What may stand around a payload in a request's body, in bytes: labels, keys, whitespace.
pub const BODY_ENVELOPE_BYTES_MAX: usize = 64 * 1024;
/// Largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = larger(PAYLOAD_BYTES_MAX, AGENT_FILE_BYTES_MAX) + BODY_ENVELOPE_BYTES_MAX;

const fn larger(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// Time a request's body may take to arrive.
pub const BODY_TIME_MAX: Span = Span::from_secs(30);
/// Time that a body under way has when the server ends.
pub const LAST_BODY_TIME_MAX: Span = Span::from_secs(1);
/// How long room for a large body is waited for.
pub const BODY_ROOM_PATIENCE: Span = Span::from_millis(250);
/// How long the rest of a body is taken whose request is answered without it.
pub const BODY_REST_TIME_MAX: Span = Span::from_secs(5);
/// Bytes of such a rest.
pub const BODY_REST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Requests to stop that come so soon after the first are still the same one: whoever passes a signal on may send it
/// to a process and to its group.
pub const STOP_REPEATED_WITHIN: Span = Span::from_millis(500);
/// Files that a process may have open at most: each costs the kernel memory.
pub const OPEN_FILES_MAX: u64 = 1 << 16;
/// Open files that the store, the log and the runtime need.
pub const STORE_FILES_MAX: usize = 64;
/// Fewest connections that a server serves at once, however few files it may open.
pub const CONNECTIONS_MIN: usize = 16;
/// Connections that may wait to be accepted.
pub const BACKLOG_MAX: u32 = 1_024;
/// Connections that a server serves at once where nothing says otherwise.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Largest first line and headers of a request, in bytes: what is buffered of a connection.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Time a request's headers may take, and the silence between two requests.
pub const HEAD_TIME_MAX: Span = Span::from_secs(10);
/// Time that requests under way have when the server ends.
pub const SERVER_DRAIN_MAX: Span = Span::from_secs(30);
/// Time that clients then have to read their answers, or to finish the headers they have begun.
pub const SERVER_LAST_WORDS_MAX: Span = Span::from_secs(2);
/// Longest wait of a long poll that comes while the server drains.
pub const DRAIN_POLL_MAX: Span = Span::from_secs(1);
/// The pause after an accept that failed for want of file descriptors or memory.
pub const ACCEPT_PAUSE: Span = Span::from_millis(100);
/// First bytes of a body that count against no common bound: connections are bounded, and small requests do not
/// wait for large ones.
pub const BODY_BYTES_FREE: usize = 16 * 1024;
/// Bytes of all requests' bodies beyond their first ones that a server holds at once, finished or not.
pub const BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest answer that counts against no common bound, in bytes.
pub const ANSWER_BYTES_FREE: usize = 16 * 1024;
/// Bytes of larger answers that a server holds at once until their clients have taken them; those of followers are
/// among them.
pub const ANSWERS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What a value or a job that is about to be written takes in memory, up to which it counts against no common bound.
pub const WRITTEN_BYTES_FREE: usize = 64 * 1024;
/// Memory of larger values that wait to be written, of all requests.
pub const VALUES_WRITTEN_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Large jobs that are parsed at once in order to write to them: what one takes is known afterwards.
pub const LARGE_FOLDS_AT_ONCE: usize = 4;
/// Memory of larger jobs that were read in order to write to them from outside a run.
pub const JOBS_WRITTEN_BYTES_MAX: usize = JOB_MEMORY_MAX;
/// How long a large answer, value or job waits for its place, or for room.
pub const ANSWER_PATIENCE: Span = Span::from_secs(10);
/// Bytes that are read or written on a thread that serves others; more of them would keep it busy.
pub const QUICK_BYTES_MAX: usize = 32 * 1024;
/// Events of an event stream that are sent at a time, as far as a page's bytes allow.
pub const STREAM_EVENTS_MAX: usize = 64;
/// Events that a verification reads at a time: their payloads stand in memory together.
pub const VERIFY_EVENTS_MAX: usize = 64;
/// Longest silence of an event stream.
pub const STREAM_SILENCE_MAX: Span = Span::from_secs(15);
/// How often an event stream looks for events that no hint has told of.
pub const STREAM_RELOOK: Span = Span::from_secs(1);
/// How often a long poll looks likewise.
pub const POLL_RELOOK: Span = Span::from_millis(500);
/// Longest line of an event stream that a client takes, in bytes; a stream with a longer one is not of our server.
pub const STREAM_LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Questions that read much and are answered at once: each may hold a page or two. Further ones wait.
pub const READS_AT_ONCE: usize = 4;
/// Answers that are made and wait for clients to take others before there is room for them; more are refused at once.
pub const ANSWERS_WAITING_MAX: usize = 8;
/// Jobs that a server replays or verifies at once; a replay counts until its answer is taken.
pub const REPLAYS_AT_ONCE: usize = 2;
/// Those of them whose history is long: the state of each is in memory once until its answer is made, its events page by
/// page.
pub const LARGE_REPLAYS_AT_ONCE: usize = 1;
/// How often a job is read anew that goes on while it is to be replayed or verified.
pub const AUDIT_LOOKS_MAX: u32 = 8;
/// Bytes of the answers of large replays until their clients have taken them.
pub const REPLAYS_BYTES_MAX: usize = JOB_MEMORY_MAX;
/// Bytes of jobs' outlines that a server keeps, so that the next question reads only what is new.
pub const OUTLINES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// A connection that has something to take and does not take [`WRITE_STALL_BYTES`] within this time is ended.
pub const WRITE_STALL_MAX: Span = Span::from_secs(30);
/// See [`WRITE_STALL_MAX`].
pub const WRITE_STALL_BYTES: usize = 16 * 1024;
/// Longest path and query of a request, in bytes.
pub const URI_BYTES_MAX: usize = 8 * 1024;
/// Longest single wait of a client for a job (`wait=` parameter).
pub const LONG_POLL_MAX: Span = Span::from_secs(60);

/// Time a step may take when nothing says otherwise.
pub const STEP_TIMEOUT_DEFAULT: Span = Span::from_secs(300);
/// Added to a call's timeout to make its permit's deadline: after it the call can no longer arrive.
pub const PERMIT_MARGIN: Span = Span::from_secs(2);
/// How much longer than its timeout an adapter may take to say so.
pub const ADAPTER_GRACE: Span = Span::from_secs(1);
/// After a permit's deadline, how long a call may stand in its receiver's queue when the tool's file says nothing: only
/// what is asked after it is a proof that the call has not happened.
pub const SETTLE_DEFAULT: Span = Span::from_secs(60);

const _: () = assert!(ADAPTER_GRACE.micros() < PERMIT_MARGIN.micros());
const _: () = assert!((UNIT_EVENTS_MAX as u64) < CHECKPOINT_EVENTS);
const _: () = assert!(PARALLEL_STEPS_MAX + UNWRITTEN_EVENTS_MAX + KEPT_SIGNALS_OF_KEY_MAX + 16 < UNIT_EVENTS_MAX);
const _: () = assert!(WRITER_BATCH_MAX <= WRITER_QUEUE_MAX);
const _: () = assert!(DOUBTS_LISTED_MAX.is_multiple_of(PAGE_JOBS_MAX));
const _: () = assert!(CLAIM_JOBS_MAX <= WORKER_SLOTS_MAX);
const _: () = assert!(PAYLOAD_BYTES_MAX <= KEPT_SIGNAL_BYTES_MAX);
const _: () = assert!(2 * KEPT_SIGNALS_OF_KEY_MAX < UNIT_EVENTS_MAX);
const _: () = assert!(BODY_BYTES_MAX < BODIES_BYTES_MAX);
const _: () = assert!(READS_AT_ONCE * (PAGE_EVENTS_BYTES_MAX + PAYLOAD_BYTES_MAX) < ANSWERS_BYTES_MAX);
const _: () = assert!(ERROR_MESSAGE_BYTES_MAX < PAYLOAD_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation names these; a computed one is written out here once more.
    #[test]
    fn computed_bounds_are_the_documented_ones() {
        assert_eq!((PAYLOAD_BYTES_MAX, AGENT_FILE_BYTES_MAX), (1_048_576, 1_048_576));
        assert_eq!((TEMPLATE_BYTES_MAX, TEMPLATE_OUTPUT_BYTES_MAX), (65_536, 1_048_576));
        assert_eq!((ERROR_MESSAGE_BYTES_MAX, NOTE_CHARS_MAX), (2_048, 4_096));
        assert_eq!((BODY_BYTES_MAX, HEAD_BYTES_MAX), (1_114_112, 65_536));
        assert_eq!(BACKOFF_MAX, Span::from_secs(86_400));
        assert_eq!(SPAN_MAX, Span::from_secs(315_360_000));
    }

    #[test]
    fn a_text_is_cut_at_a_character_and_only_if_it_is_longer() {
        let cut = |text: &str, most| super::cut(text.to_owned(), most);
        for most in [3, 4, 9, 100] {
            assert_eq!(cut(&"a".repeat(most), most), "a".repeat(most));
            assert_eq!(cut(&"a".repeat(most + 1), most), format!("{}…", "a".repeat(most - 3)));
        }
        assert_eq!(cut("éééé", 8), "éééé");
        assert_eq!(cut("éééé", 7), "éé…");
        assert_eq!(cut("ééééé", 9), "ééé…");
    }

    #[test]
    fn texts_are_as_long_as_their_characters() {
        for character in ["a", "é", "\u{1f980}"] {
            assert!(!is_longer(&character.repeat(LABEL_CHARS_MAX), LABEL_CHARS_MAX));
            assert!(is_longer(&character.repeat(LABEL_CHARS_MAX + 1), LABEL_CHARS_MAX));
        }
        assert!(!is_longer("", 0));
    }
}
