-- D1: only moves of the two tables. Cases are events. The state of a job and of a step follows from the last
-- event that moved it; the table says after which states each event may come.
WITH waits AS (
    SELECT job, seq, kind, payload,
           lag(kind) OVER w AS before, lag(payload ->> 'doubt') OVER w AS doubt_before
    FROM events WHERE kind IN ('job_waiting', 'wait_completed', 'in_doubt_resolved', 'job_claimed', 'job_requeued',
                               'job_completed', 'job_failed', 'job_cancelled')
    WINDOW w AS (PARTITION BY job ORDER BY seq)
), moved AS (
    SELECT e.job, e.seq, e.kind, e.payload, coalesce(w.doubt_before, 0) AS of_doubt,
           CASE e.kind
               WHEN 'job_created' THEN 'pending' WHEN 'job_claimed' THEN 'running' WHEN 'job_requeued' THEN 'pending'
               WHEN 'job_waiting' THEN 'waiting' WHEN 'wait_completed' THEN 'pending' WHEN 'job_completed' THEN 'ended'
               WHEN 'job_failed' THEN 'ended' WHEN 'job_cancelled' THEN 'ended'
               WHEN 'in_doubt_resolved' THEN CASE w.before WHEN 'job_waiting' THEN 'pending' END END AS job_state,
           CASE e.kind
               WHEN 'node_started' THEN 'running' WHEN 'tool_invocation_started' THEN 'running'
               WHEN 'node_finished' THEN 'ended' WHEN 'node_skipped' THEN 'ended' WHEN 'node_retry_scheduled' THEN 'retrying'
               WHEN 'step_in_doubt' THEN 'in_doubt'
               WHEN 'job_waiting' THEN CASE WHEN NOT coalesce(e.payload ->> 'doubt', 0) THEN 'waiting' END
               WHEN 'wait_completed' THEN CASE WHEN NOT coalesce(w.doubt_before, 0) THEN 'running' END
               WHEN 'in_doubt_resolved' THEN CASE e.payload ->> 'outcome' WHEN 'unresolved' THEN 'in_doubt' ELSE 'running' END
           END AS step_state
    FROM events e LEFT JOIN waits w ON w.job = e.job AND w.seq = e.seq
), job_moves AS (
    SELECT *, max(CASE WHEN job_state IS NOT NULL THEN seq END)
        OVER (PARTITION BY job ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS last_move
    FROM moved
), step_moves AS (
    SELECT job, seq, lag(step_state, 1, 'pending') OVER (PARTITION BY job, payload ->> 'node' ORDER BY seq) AS step_before
    FROM moved WHERE step_state IS NOT NULL
), both AS (
    SELECT m.*, coalesce(l.job_state, 'none') AS job_before, s.step_before,
           d.kind = 'in_doubt_resolved' AND d.payload ->> 'outcome' = 'did_not_happen' AS disproved_before
    FROM job_moves m LEFT JOIN moved l ON l.job = m.job AND l.seq = m.last_move
    LEFT JOIN moved d ON d.job = m.job AND d.seq = m.seq - 1
    LEFT JOIN step_moves s ON s.job = m.job AND s.seq = m.seq
)
SELECT job || ' ' || seq AS place,
       CASE WHEN NOT coalesce(CASE kind
                WHEN 'job_created' THEN job_before = 'none' AND seq = 1
                WHEN 'plan_generated' THEN job_before = 'pending'
                WHEN 'job_claimed' THEN job_before = 'pending'
                WHEN 'job_requeued' THEN job_before = 'running'
                WHEN 'job_waiting' THEN job_before = 'running'
                WHEN 'wait_completed' THEN job_before = 'waiting'
                WHEN 'job_cancel_requested' THEN job_before = 'running'
                WHEN 'job_completed' THEN job_before = 'running'
                WHEN 'job_failed' THEN job_before IN ('pending', 'running', 'waiting')
                WHEN 'job_cancelled' THEN job_before IN ('pending', 'running', 'waiting')
                WHEN 'node_started' THEN job_before = 'running' AND step_before IN ('pending', 'retrying')
                WHEN 'node_finished' THEN (job_before = 'running' OR (job_before = 'pending' AND disproved_before))
                    AND (step_before = 'running'
                    OR (payload ->> 'result' IN ('retryable_failure', 'permanent_failure') AND step_before IN ('pending', 'in_doubt')))
                -- What was disproved from outside ends its try in the same unit, before anybody holds the job again.
                WHEN 'node_retry_scheduled' THEN step_before = 'running' AND (job_before = 'running'
                    OR (job_before = 'pending' AND disproved_before))
                WHEN 'node_skipped' THEN job_before = 'running' AND step_before = 'pending'
                WHEN 'tool_invocation_started' THEN job_before = 'running' AND step_before = 'running'
                WHEN 'tool_invocation_finished' THEN job_before = 'running'
                WHEN 'command_committed' THEN job_before <> 'none'
                WHEN 'step_in_doubt' THEN step_before IN ('running', 'in_doubt')
                WHEN 'in_doubt_resolved' THEN step_before = 'in_doubt'
                WHEN 'timer_set' THEN job_before <> 'none'
                WHEN 'timer_fired' THEN job_before NOT IN ('none', 'ended') END, 0)
              OR (kind = 'job_waiting' AND step_before IS NOT NULL AND step_before <> 'running')
            THEN coalesce(kind, 'an unknown event') || ' of a ' || job_before || ' job, its step ' || coalesce(step_before, '-') END
           AS violation
FROM both
