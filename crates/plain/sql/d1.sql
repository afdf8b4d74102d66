-- D1: only moves of the two tables. Cases are events. The state of a job and of a step follows from the last
-- event that moved it; the table says after which states each event may come.
WITH waits AS (
    -- Whether a wait was open before each event, of a doubt or of the plan, under which key, and whether the job was held still.
    SELECT job, seq, kind, payload,
           max(CASE WHEN kind = 'job_waiting' THEN seq END) OVER w AS began,
           max(CASE WHEN kind IN ('wait_completed', 'in_doubt_resolved', 'job_claimed', 'job_completed', 'job_failed',
                                  'job_cancelled') THEN seq END) OVER w AS over,
           coalesce(max(CASE WHEN kind = 'job_paused' THEN seq END) OVER w
                    > coalesce(max(CASE WHEN kind = 'job_resumed' THEN seq END) OVER w, 0), 0) AS still
    FROM events WINDOW w AS (PARTITION BY job ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), opened AS (
    SELECT w.job, w.seq, w.kind, w.payload, w.still,
           coalesce(w.began > coalesce(w.over, 0), 0) AS open,
           b.payload ->> 'correlation_key' AS awaited,
           coalesce(w.began > coalesce(w.over, 0) AND b.payload ->> 'doubt', 0) AS of_doubt
    FROM waits w LEFT JOIN events b ON b.job = w.job AND b.seq = w.began
), moved AS (
    SELECT *,
           CASE kind
               WHEN 'job_created' THEN 'pending' WHEN 'job_claimed' THEN 'running' WHEN 'job_requeued' THEN 'pending'
               WHEN 'job_waiting' THEN 'waiting' WHEN 'job_paused' THEN 'paused'
               WHEN 'job_resumed' THEN CASE WHEN open THEN 'waiting' ELSE 'pending' END
               -- What ends the wait of a job that is held still does not set it going.
               WHEN 'wait_completed' THEN CASE WHEN still THEN 'paused' ELSE 'pending' END
               WHEN 'in_doubt_resolved' THEN CASE WHEN open THEN CASE WHEN still THEN 'paused' ELSE 'pending' END END
               WHEN 'job_completed' THEN 'ended' WHEN 'job_failed' THEN 'ended' WHEN 'job_cancelled' THEN 'ended' END AS job_state,
           CASE kind
               WHEN 'node_started' THEN 'running' WHEN 'tool_invocation_started' THEN 'running'
               WHEN 'node_finished' THEN 'ended' WHEN 'node_skipped' THEN 'ended' WHEN 'node_retry_scheduled' THEN 'retrying'
               WHEN 'step_in_doubt' THEN 'in_doubt'
               WHEN 'job_waiting' THEN CASE WHEN NOT coalesce(payload ->> 'doubt', 0) THEN 'waiting' END
               WHEN 'wait_completed' THEN CASE WHEN NOT of_doubt THEN 'running' END
               WHEN 'in_doubt_resolved' THEN CASE payload ->> 'outcome' WHEN 'unresolved' THEN 'in_doubt' ELSE 'running' END
           END AS step_state
    FROM opened
), job_moves AS (
    SELECT *, max(CASE WHEN job_state IS NOT NULL THEN seq END)
        OVER (PARTITION BY job ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS last_move
    FROM moved
), step_moves AS (
    SELECT job, seq, lag(step_state, 1, 'pending') OVER (PARTITION BY job, payload ->> 'node' ORDER BY seq) AS step_before
    FROM moved WHERE step_state IS NOT NULL
), both AS (
    SELECT m.*, coalesce(l.job_state, 'none') AS job_before, s.step_before,
           d.kind = 'in_doubt_resolved' AND d.payload ->> 'outcome' = 'did_not_happen' AS disproved_before,
           EXISTS (SELECT 1 FROM events p WHERE p.job = m.job AND p.kind = 'job_pause_requested' AND p.seq < m.seq
                   AND p.seq > l.seq) AS pause_asked
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
                WHEN 'wait_completed' THEN open AND job_before IN ('waiting', 'paused')
                WHEN 'signal_refused' THEN open AND job_before IN ('waiting', 'paused') AND awaited = payload ->> 'correlation_key'
                WHEN 'job_cancel_requested' THEN job_before = 'running'
                WHEN 'job_pause_requested' THEN job_before = 'running' AND NOT pause_asked
                WHEN 'job_paused' THEN job_before IN ('pending', 'waiting')
                    OR (job_before = 'running' AND (pause_asked OR payload ->> 'reason' = 'restored'))
                WHEN 'job_resumed' THEN job_before = 'paused'
                WHEN 'job_completed' THEN job_before = 'running'
                WHEN 'job_failed' THEN job_before IN ('pending', 'running', 'waiting', 'paused')
                WHEN 'job_cancelled' THEN job_before IN ('pending', 'running', 'waiting', 'paused')
                WHEN 'node_started' THEN job_before = 'running' AND step_before IN ('pending', 'retrying')
                -- What was disproved from outside ends its try in the same unit, before anybody holds the job again.
                WHEN 'node_finished' THEN (job_before = 'running' OR (job_before IN ('pending', 'paused') AND disproved_before))
                    AND CASE payload ->> 'result'
                        WHEN 'retryable_failure' THEN step_before IN ('running', 'pending', 'in_doubt')
                        -- A next try is announced, and then its job's budget is found to be used up.
                        WHEN 'permanent_failure' THEN step_before IN ('running', 'pending', 'in_doubt', 'retrying')
                        ELSE step_before = 'running' END
                WHEN 'node_retry_scheduled' THEN step_before = 'running' AND (job_before = 'running'
                    OR (job_before IN ('pending', 'paused') AND disproved_before))
                WHEN 'node_skipped' THEN job_before = 'running' AND step_before = 'pending'
                WHEN 'tool_invocation_started' THEN job_before = 'running' AND step_before = 'running'
                WHEN 'tool_invocation_finished' THEN job_before = 'running'
                WHEN 'command_committed' THEN job_before <> 'none'
                WHEN 'step_in_doubt' THEN step_before IN ('running', 'in_doubt')
                -- An answer that comes late: to a call that its job's end left open, or the success of one that was disproved.
                WHEN 'in_doubt_resolved' THEN CASE
                    WHEN job_before = 'ended' THEN payload ->> 'by' IN ('operator', 'late_deposit') AND payload ->> 'outcome' <> 'unresolved'
                    WHEN step_before = 'in_doubt' THEN 1
                    ELSE payload ->> 'by' = 'late_deposit' AND payload ->> 'outcome' = 'happened' END
                WHEN 'timer_set' THEN job_before <> 'none'
                WHEN 'timer_fired' THEN job_before NOT IN ('none', 'ended') END, 0)
              OR (kind = 'job_waiting' AND step_before IS NOT NULL AND step_before <> 'running')
            THEN coalesce(kind, 'an unknown event') || ' of a ' || job_before || ' job, its step ' || coalesce(step_before, '-') END
           AS violation
FROM both
