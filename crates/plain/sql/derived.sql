-- What several queries ask for, worked out once from the events.
CREATE INDEX events_job ON events (job, seq);
CREATE INDEX events_kind ON events (kind, job, seq);
CREATE INDEX jobs_job ON jobs (job);
CREATE INDEX ledger_key ON ledger (job, key);
CREATE INDEX effects_key ON effects (job, key);
CREATE INDEX witness_key ON witness (job, key);
CREATE INDEX inbox_job ON inbox (job, key);
CREATE INDEX signals_job ON signals (job, key);

CREATE TABLE permits AS
SELECT job, seq, at, fence, payload ->> 'node' AS node, bits(payload ->> 'key') AS key, payload ->> 'permit' AS permit,
       bits(payload ->> 'permit_id') AS permit_id, payload ->> 'effect' AS effect, payload ->> 'tool' AS tool, payload ->> 'lifetime_us' AS lifetime_us
FROM events WHERE kind = 'tool_invocation_started';
CREATE INDEX permits_key ON permits (job, key, permit);
CREATE INDEX permits_node ON permits (job, node, seq);

-- What was said of a call: the key is the one that its node was last permitted with.
CREATE TABLE said AS
SELECT e.job, e.seq, e.at, e.kind, e.payload ->> 'node' AS node, e.payload ->> 'permit' AS permit,
       e.payload ->> 'outcome' AS outcome, e.payload ->> 'by' AS resolver, e.payload ->> 'grounds' AS grounds, e.payload ->> 'result' AS result,
       e.payload ->> 'result_hash' AS result_hash,
       (SELECT p.key FROM permits p WHERE p.job = e.job AND p.node = e.payload ->> 'node' AND p.seq < e.seq
        ORDER BY p.seq DESC LIMIT 1) AS key
FROM events e
WHERE e.kind IN ('tool_invocation_finished', 'step_in_doubt', 'in_doubt_resolved', 'command_committed', 'node_finished');
CREATE INDEX said_key ON said (job, key, kind, permit);
CREATE INDEX said_node ON said (job, node, kind);

-- Calls that came and need a permission: they acted, or named their permit and were turned away.
CREATE TABLE arrivals AS
SELECT w.*, EXISTS (SELECT 1 FROM jobs j WHERE j.job = w.job) AS known
FROM witness w WHERE w.kind <> 'body_end' AND (w.permit IS NOT NULL OR (w.kind = 'body_start' AND w.acts));
CREATE INDEX arrivals_key ON arrivals (job, key);

-- Those of them that changed the world.
CREATE TABLE acts AS
SELECT * FROM arrivals WHERE kind = 'body_start' AND acts;
CREATE INDEX acts_key ON acts (job, key);

-- Signals that ended a wait, under the wait's own key.
CREATE TABLE delivered AS
SELECT job, seq, waited AS key, sha256(payload -> '$.by.signal.payload') AS payload_hash,
       bits(payload ->> '$.by.signal.signal') AS signal
FROM (SELECT job, seq, kind, payload,
             lag(kind) OVER w AS before, lag(payload ->> 'correlation_key') OVER w AS waited
      FROM events WHERE kind IN ('job_waiting', 'wait_completed')
      WINDOW w AS (PARTITION BY job, payload ->> 'node' ORDER BY seq))
WHERE kind = 'wait_completed' AND before = 'job_waiting' AND waited IS NOT NULL
  AND json_type(payload, '$.by.signal') IS NOT NULL;
CREATE INDEX delivered_key ON delivered (job, key);
