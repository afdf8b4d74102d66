-- D1: only moves of the two tables. Cases are events. The state of a job, of a step and of its call follows from the last
-- event that moved it; the table says after which states each event may come.
WITH before AS (
    -- What had come before each event: who held the job, an order to pause or to end, whether the job was paused, and the
    -- last wait of the step. The last of a kind is found by its number, in front of what is asked of it.
    SELECT job, seq, kind, payload, payload ->> 'node' AS node,
           max(CASE WHEN kind = 'job_waiting' THEN printf('%012d', seq) || payload END) OVER s AS began,
           max(CASE WHEN kind IN ('wait_completed', 'child_ended', 'in_doubt_resolved') THEN seq END) OVER s AS over,
           coalesce(max(CASE WHEN kind = 'job_waiting' THEN seq END) OVER w
                    > max(CASE WHEN kind IN ('job_claimed', 'job_requeued', 'wait_completed', 'child_ended', 'in_doubt_resolved') THEN seq END) OVER w, 0)
               AS blocked,
           coalesce(max(CASE WHEN kind = 'job_claimed' THEN seq END) OVER w
                    > coalesce(max(CASE WHEN kind IN ('job_requeued', 'job_waiting', 'job_paused') THEN seq END) OVER w, 0), 0) AS held,
           max(kind IN ('job_completed', 'job_failed', 'job_cancelled')) OVER w AS ended,
           coalesce(max(CASE WHEN kind = 'job_cancel_requested' THEN seq END) OVER w
                    > max(CASE WHEN kind = 'job_claimed' THEN seq END) OVER w, 0) AS ending,
           coalesce(max(CASE WHEN kind = 'job_pause_requested' THEN seq END) OVER w
                    > max(CASE WHEN kind = 'job_claimed' THEN seq END) OVER w, 0) AS pausing,
           coalesce(max(CASE WHEN kind = 'job_paused' THEN seq END) OVER w
                    > coalesce(max(CASE WHEN kind = 'job_resumed' THEN seq END) OVER w, 0), 0) AS still,
           -- What was disproved just before.
           CASE WHEN lag(kind) OVER o = 'in_doubt_resolved' AND lag(payload ->> 'outcome') OVER o = 'did_not_happen'
                THEN lag(payload ->> 'node') OVER o END AS disproved
    FROM events WINDOW o AS (PARTITION BY job ORDER BY seq),
                       s AS (PARTITION BY job, payload ->> 'node' ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                       w AS (PARTITION BY job ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), waits AS (
    -- Whether the wait of the event's own step was open, and what it was for.
    SELECT *, coalesce(began > coalesce(printf('%012d', over), ''), 0) AS open, substr(began, 13) AS wait FROM before
), opened AS (
    -- How many steps the job was blocked on.
    SELECT *, coalesce(open AND wait ->> 'doubt', 0) AS of_doubt,
           coalesce(sum(CASE WHEN kind = 'job_waiting' THEN NOT open
                             WHEN kind IN ('wait_completed', 'child_ended', 'in_doubt_resolved') THEN -open END)
               OVER (PARTITION BY job ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS blocks
    FROM waits
), moved AS (
    SELECT *,
           CASE kind
               WHEN 'job_created' THEN 'pending' WHEN 'job_claimed' THEN 'running' WHEN 'job_requeued' THEN 'pending'
               WHEN 'job_waiting' THEN 'waiting' WHEN 'job_paused' THEN 'paused'
               WHEN 'job_resumed' THEN CASE WHEN blocks > 0 AND blocked THEN 'waiting' ELSE 'pending' END
               -- What ends a wait of a paused job does not set it going, and one that is held goes on.
               WHEN 'wait_completed' THEN CASE WHEN still THEN 'paused' WHEN held THEN 'running' ELSE 'pending' END
               -- It may come before its job waits for it.
               WHEN 'child_ended' THEN CASE WHEN NOT open THEN NULL WHEN still THEN 'paused' WHEN held THEN 'running' ELSE 'pending' END
               WHEN 'in_doubt_resolved' THEN CASE WHEN ended THEN NULL WHEN still THEN 'paused' WHEN held THEN 'running' ELSE 'pending' END
               WHEN 'job_completed' THEN 'ended' WHEN 'job_failed' THEN 'ended' WHEN 'job_cancelled' THEN 'ended' END AS job_state,
           CASE kind
               WHEN 'node_started' THEN 'running' WHEN 'tool_invocation_started' THEN 'running'
               -- What is judged has not ended with its output.
               WHEN 'node_finished' THEN CASE iif(node LIKE '%/critic', NULL, payload ->> 'verdict')
                   WHEN 'pending' THEN 'validating' WHEN 'reject' THEN 'rejected' ELSE 'ended' END
               WHEN 'node_refining' THEN 'refining' WHEN 'node_skipped' THEN 'ended' WHEN 'node_retry_scheduled' THEN 'retrying'
               WHEN 'step_in_doubt' THEN 'in_doubt'
               WHEN 'job_waiting' THEN CASE WHEN NOT coalesce(payload ->> 'doubt', 0) THEN 'waiting' END
               WHEN 'wait_completed' THEN CASE WHEN NOT of_doubt THEN 'running' END
               WHEN 'child_ended' THEN CASE WHEN open THEN 'running' END
               WHEN 'in_doubt_resolved' THEN CASE payload ->> 'outcome' WHEN 'unresolved' THEN 'in_doubt' ELSE 'running' END
           END AS step_state,
           CASE kind
               WHEN 'tool_invocation_started' THEN CASE payload ->> 'effect' WHEN 'idempotent' THEN 'repeatable' ELSE 'open' END
               WHEN 'tool_invocation_finished' THEN payload ->> 'outcome'
               WHEN 'in_doubt_resolved' THEN 'resolved ' || (payload ->> 'outcome') END AS call_state
    FROM opened
), judged AS (
    -- The steps that end with another: what a critic has passed, or has failed to judge, and what a round is one of.
    SELECT job, seq, substr(node, 1, length(node) - 7) AS node FROM moved
    WHERE kind = 'node_finished' AND node LIKE '%/critic' AND payload ->> 'verdict' IS NOT 'reject'
    UNION ALL
    SELECT job, seq, node FROM moved WHERE kind = 'node_finished' AND node NOT LIKE '%/critic' AND step_state = 'ended'
), refused AS (
    SELECT job, seq, iif(node LIKE '%/critic', substr(node, 1, length(node) - 7), node) AS node FROM moved
    WHERE kind = 'node_finished' AND payload ->> 'verdict' = 'reject'
), parts AS (
    SELECT job, seq, node, 'ended' AS part_state FROM judged
    -- A turn or a call of a loop ends no round.
    UNION SELECT job, seq, substr(node, 1, instr(node, '@') - 1), 'ended' FROM judged
    WHERE node LIKE '%@%' AND node NOT GLOB '*/[0-9]*'
    -- What is rejected, and that a round of it is.
    UNION SELECT job, seq, node, 'rejected' FROM refused
    UNION SELECT job, seq, substr(node, 1, instr(node, '@') - 1), 'to refine' FROM refused WHERE node LIKE '%@%'
    UNION SELECT job, seq, node || '@' || (payload ->> 'round' - 1), 'ended' FROM moved
    WHERE kind = 'node_refining' AND payload ->> 'round' > 1
    -- What is due then: a further round, or the question to a critic.
    UNION SELECT job, seq, node || '@' || (payload ->> 'round'), 'due' FROM moved WHERE kind = 'node_refining'
    UNION SELECT job, seq, node || '/critic', 'due' FROM moved
    WHERE kind = 'node_finished' AND node NOT LIKE '%/critic' AND payload ->> 'verdict' = 'pending'
), all_moved AS (
    SELECT * FROM moved
    UNION ALL
    SELECT p.job, p.seq + 0.5, 'part', '{}', p.node, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, p.part_state, NULL
    FROM parts p WHERE NOT EXISTS (SELECT 1 FROM moved m WHERE m.job = p.job AND m.seq = p.seq AND m.node = p.node)
), changed AS (
    SELECT *, lag(step_state, 1, 'ended') OVER (PARTITION BY job, node, step_state IS NULL ORDER BY seq) AS step_was FROM all_moved
), both AS (
    SELECT *, coalesce(substr(max(CASE WHEN job_state IS NOT NULL THEN printf('%012d', seq) || job_state END) OVER j, 13), 'none')
               AS job_before,
           CASE WHEN node IS NOT NULL THEN coalesce(substr(max(CASE WHEN step_state IS NOT NULL
               THEN printf('%012d', seq) || step_state END) OVER n, 13), 'pending') END AS step_before,
           CASE WHEN node IS NOT NULL THEN substr(max(CASE WHEN call_state IS NOT NULL
               THEN printf('%012d', seq) || call_state END) OVER n, 13) END AS call_before,
           sum(CASE WHEN step_state IS NOT NULL THEN (step_state <> 'ended') - (step_was <> 'ended') END) OVER j AS open_steps,
           count(CASE WHEN kind = 'node_started' THEN 1 END) OVER n AS tries,
           count(CASE WHEN kind = 'node_refining' THEN 1 END) OVER n AS rounds,
           count(CASE WHEN kind = 'tool_invocation_started' THEN 1 END) OVER n AS permits,
           count(CASE WHEN kind = 'child_started' THEN 1 END) OVER n AS asked,
           count(CASE WHEN kind = 'child_started' AND payload ->> 'waits' THEN 1 END) OVER n
               - count(CASE WHEN kind = 'child_ended' THEN 1 END) OVER n AS awaited,
           count(CASE WHEN kind = 'step_in_doubt' THEN 1 END) OVER p AS policies,
           count(CASE WHEN kind = 'job_waiting' THEN 1 END) OVER k AS same_key,
           disproved = node AS disproved_before, coalesce((node LIKE '%@%' AND node NOT GLOB '*/[0-9]*') OR node LIKE '%/critic', 0) AS of_part
    FROM changed
    WINDOW j AS (PARTITION BY job ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
           n AS (PARTITION BY job, node ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
           p AS (PARTITION BY job, node, payload ->> 'permit' ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
           k AS (PARTITION BY job, payload ->> 'correlation_key' ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT job || ' ' || seq AS place,
       CASE WHEN NOT coalesce(CASE kind
                WHEN 'job_created' THEN job_before = 'none' AND seq = 1
                -- With the job, or by the run that has made it.
                WHEN 'plan_generated' THEN iif((SELECT c.payload ->> 'planning' FROM events c WHERE c.job = both.job AND c.seq = 1) IS NULL,
                    job_before = 'pending' AND seq = 2,
                    job_before = 'running' AND NOT ending AND NOT pausing AND EXISTS (SELECT 1 FROM events f
                        WHERE f.job = both.job AND f.seq < both.seq AND f.kind = 'node_finished' AND f.payload ->> 'node' GLOB '$plan*'
                          AND coalesce(f.payload ->> 'verdict', 'pass') = 'pass' AND f.payload ->> 'error' IS NULL))
                WHEN 'job_claimed' THEN job_before = 'pending'
                -- Behind an order to end or to pause only that follows, and what is known of the call that is under way.
                WHEN 'job_requeued' THEN NOT ending AND NOT pausing
                    AND (job_before = 'running' OR (job_before = 'waiting' AND payload ->> 'reason' IN ('retry', 'rate_limited')))
                -- Of several steps each tells of its wait, and one whose wait goes on may tell of it again.
                WHEN 'job_waiting' THEN job_before IN ('running', 'waiting') AND NOT ending AND NOT pausing AND CASE WHEN open
                    THEN coalesce(wait ->> 'doubt', 0) = coalesce(payload ->> 'doubt', 0) AND wait ->> 'wait_type' = payload ->> 'wait_type'
                        AND wait ->> 'correlation_key' IS payload ->> 'correlation_key'
                    ELSE step_before = CASE WHEN payload ->> 'doubt' THEN 'in_doubt' ELSE 'running' END
                        AND (coalesce(payload ->> 'doubt', 0) OR awaited = (payload ->> 'wait_type' = 'child'))
                        AND (payload ->> 'correlation_key' IS NULL OR same_key = 0) END
                WHEN 'wait_completed' THEN open AND job_before IN ('pending', 'running', 'waiting', 'paused')
                    AND NOT (of_doubt AND payload ->> 'by' IS NOT 'time')
                WHEN 'child_started' THEN job_before = 'running' AND NOT ending AND NOT pausing AND step_before = 'running'
                    AND asked = 0 AND permits = 0
                WHEN 'child_ended' THEN job_before IN ('pending', 'running', 'waiting', 'paused') AND awaited = 1
                    AND (open OR step_before = 'running')
                WHEN 'signal_refused' THEN open AND job_before IN ('pending', 'running', 'waiting', 'paused')
                    AND wait ->> 'correlation_key' = payload ->> 'correlation_key'
                WHEN 'job_cancel_requested' THEN job_before = 'running' AND NOT ending
                WHEN 'job_pause_requested' THEN job_before = 'running' AND NOT ending AND NOT pausing
                WHEN 'job_paused' THEN job_before IN ('pending', 'waiting') OR (job_before = 'running' AND NOT ending
                    AND (pausing OR payload ->> 'reason' = 'restored'))
                WHEN 'job_resumed' THEN job_before = 'paused'
                WHEN 'job_completed' THEN job_before = 'running' AND NOT ending AND NOT pausing
                    AND coalesce(open_steps, 0) = 0
                WHEN 'job_failed' THEN job_before IN ('pending', 'running', 'waiting', 'paused')
                WHEN 'job_cancelled' THEN job_before IN ('pending', 'running', 'waiting', 'paused')
                WHEN 'node_started' THEN job_before = 'running' AND NOT ending AND NOT pausing
                    AND step_before IN (iif(of_part, 'due', 'pending'), 'retrying') AND payload ->> 'try' = tries + 1
                -- What was disproved from outside ends its try in the same unit, before anybody holds the job again.
                WHEN 'node_finished' THEN CASE WHEN payload ->> 'result' IN ('retryable_failure', 'permanent_failure')
                    -- A next try is announced, and then its job's budget is found to be used up.
                    THEN step_before IN ('running', iif(of_part, 'due', 'pending'), 'in_doubt', 'retrying', 'validating', 'rejected')
                        AND (job_before = 'running' OR (job_before IN ('pending', 'paused') AND disproved_before))
                    ELSE step_before = 'running' AND job_before = 'running' AND awaited = 0
                        AND iif(node LIKE '%/critic', coalesce(payload ->> 'verdict' IN ('pass', 'reject'), 0),
                            payload ->> 'verdict' IS NOT 'pass') END
                WHEN 'node_retry_scheduled' THEN step_before = 'running' AND call_before IS NOT 'open'
                    AND (job_before = 'running' OR (job_before IN ('pending', 'paused') AND disproved_before))
                WHEN 'node_skipped' THEN job_before = 'running' AND step_before = 'pending' AND NOT of_part
                WHEN 'node_refining' THEN job_before = 'running' AND NOT of_part AND payload ->> 'round' = rounds + 1
                    AND step_before = CASE rounds WHEN 0 THEN 'rejected' ELSE 'to refine' END
                WHEN 'value_recorded' THEN job_before = 'running' AND step_before = 'running'
                WHEN 'tool_invocation_started' THEN job_before = 'running' AND NOT ending AND NOT pausing AND step_before = 'running'
                    AND coalesce(call_before IN ('refused_retryable', 'not_sent', 'in_doubt', 'repeatable', 'resolved did_not_happen'), 1)
                    AND payload ->> 'permit' = permits + 1
                WHEN 'tool_invocation_finished' THEN job_before = 'running' AND payload ->> 'permit' = permits
                    AND (call_before IN ('open', 'repeatable') OR (call_before = 'resolved happened' AND payload ->> 'outcome' = 'committed'))
                WHEN 'command_committed' THEN call_before = 'committed'
                WHEN 'step_in_doubt' THEN job_before NOT IN ('none', 'ended') AND step_before IN ('running', 'in_doubt')
                    AND call_before IN ('open', 'repeatable') AND payload ->> 'permit' = permits
                    AND payload ->> 'policy' = policies
                -- An answer that comes late: to a call that its job's end left open, or the success of one that was disproved.
                WHEN 'in_doubt_resolved' THEN payload ->> 'permit' = permits AND CASE
                    WHEN job_before = 'ended' THEN payload ->> 'by' IN ('operator', 'late_deposit')
                        AND payload ->> 'outcome' <> 'unresolved' AND (call_before IN ('open', 'repeatable', 'in_doubt', 'resolved unresolved')
                            OR (call_before = 'resolved did_not_happen' AND payload ->> 'by' = 'late_deposit'
                                AND payload ->> 'outcome' = 'happened'))
                    WHEN step_before = 'in_doubt' THEN call_before IN ('open', 'repeatable')
                    ELSE step_before IN ('running', 'retrying') AND call_before = 'resolved did_not_happen'
                        AND payload ->> 'by' = 'late_deposit' AND payload ->> 'outcome' = 'happened' END
                WHEN 'timer_set' THEN job_before <> 'none'
                -- Whether it was set is E6's.
                WHEN 'timer_fired' THEN job_before NOT IN ('none', 'ended') END, 0)
            THEN coalesce(kind, 'an unknown event') || ' of a ' || job_before || ' job, its step ' || coalesce(step_before, '-') END
           AS violation
FROM both WHERE kind <> 'part'
