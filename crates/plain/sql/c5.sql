-- C5: an unknown outcome is in doubt, never a guess. Cases are ledger rows, permissions, disproofs, and calls
-- that are listed as in doubt.
WITH ledger_rows AS (
    SELECT l.*, j.status AS job_status,
           (SELECT p.permit || ' ' || p.permit_id FROM permits p WHERE p.job = l.job AND p.key = l.key
            ORDER BY p.seq DESC LIMIT 1) IS (l.permit || ' ' || l.permit_id) AS is_current,
           (SELECT p.node || ' ' || p.tool FROM permits p WHERE p.job = l.job AND p.key = l.key ORDER BY p.seq DESC LIMIT 1) AS called,
           (SELECT p.lifetime_us FROM permits p WHERE p.job = l.job AND p.key = l.key ORDER BY p.seq DESC LIMIT 1) AS given_for,
           (SELECT p.at FROM permits p WHERE p.job = l.job AND p.key = l.key ORDER BY p.seq DESC LIMIT 1) AS given_at,
           (SELECT s.outcome FROM said s WHERE s.job = l.job AND s.key = l.key AND s.kind = 'tool_invocation_finished'
            AND s.permit = l.permit ORDER BY s.seq DESC LIMIT 1) AS told,
           EXISTS (SELECT 1 FROM said s WHERE s.job = l.job AND s.key = l.key AND s.kind = 'step_in_doubt'
                   AND s.permit = l.permit) AS doubted,
           EXISTS (SELECT 1 FROM said s WHERE s.job = l.job AND s.key = l.key AND s.kind = 'in_doubt_resolved'
                   AND s.permit = l.permit AND s.outcome = 'did_not_happen') AS disproof,
           EXISTS (SELECT 1 FROM said s WHERE s.job = l.job AND s.key = l.key AND s.kind = 'in_doubt_resolved'
                   AND s.permit = l.permit AND s.outcome = 'unresolved') AS given_up,
           EXISTS (SELECT 1 FROM said s WHERE s.job = l.job AND s.key = l.key AND s.kind = 'node_finished') AS step_ended
    FROM ledger l JOIN jobs j ON j.job = l.job
), given AS (
    SELECT p.*, row_number() OVER (PARTITION BY p.job, p.key ORDER BY p.seq) AS place_of,
           (SELECT s.outcome FROM said s WHERE s.job = p.job AND s.key = p.key AND s.kind = 'tool_invocation_finished'
            AND s.permit = p.permit - 1 ORDER BY s.seq DESC LIMIT 1) AS outcome_before,
           EXISTS (SELECT 1 FROM said s WHERE s.job = p.job AND s.key = p.key AND s.kind = 'in_doubt_resolved'
                   AND s.permit = p.permit - 1 AND s.outcome = 'did_not_happen') AS disproof_before
    FROM permits p
)
SELECT job || ' ' || node AS place,
       CASE WHEN NOT is_current THEN 'the ledger is at permit ' || permit || ', its events are not'
            WHEN node || ' ' || tool <> called THEN 'the ledger has it at another node or of another tool than its events'
            WHEN deadline <> given_at + given_for THEN 'its permit''s deadline is not what its events say'
            WHEN lifetime <> given_for THEN 'its permit''s lifetime is not what its events say'
            WHEN status = 'started' AND job_status NOT IN ('pending', 'running', 'paused') THEN 'nothing is known of its call, and the job has gone on'
            WHEN status = 'in_doubt' AND disproved AND NOT disproof THEN 'the ledger says that it did not happen, and no event does'
            WHEN status = 'in_doubt' AND NOT doubted AND told IS NOT 'in_doubt' THEN 'the ledger has it in doubt, and no event does'
            WHEN status = 'failed_unresolved' AND told IS NOT 'in_doubt' AND NOT given_up THEN 'the ledger has given it up, and no event does'
            WHEN status = 'failed_unresolved' AND NOT given_up AND NOT step_ended
             AND job_status NOT IN ('completed', 'failed', 'cancelled') THEN 'the ledger has given it up, and its step goes on'
            WHEN status = 'committed' AND told NOT IN ('committed', 'in_doubt') THEN 'the ledger has it committed, and its events tell another outcome'
            WHEN status IN ('not_sent', 'refused_retryable', 'refused_permanent') AND (doubted OR told <> status)
            THEN 'the ledger has it ' || status || ', and its events say otherwise'
       END AS violation
FROM ledger_rows
UNION ALL
SELECT DISTINCT p.job || ' ' || p.key, 'it was permitted and the ledger has no row'
FROM permits p WHERE NOT EXISTS (SELECT 1 FROM ledger l WHERE l.job = p.job AND l.key = p.key)
UNION ALL
SELECT job || ' ' || node || ' ' || permit,
       CASE WHEN place_of <> permit
              OR (permit > 1 AND effect = 'at_most_once' AND NOT disproof_before
                  AND coalesce(outcome_before, '') NOT IN ('refused_retryable', 'not_sent'))
            THEN 'the permit was given without a reason' END
FROM given
UNION ALL
SELECT s.job || ' ' || s.node || ' ' || s.seq,
       CASE WHEN s.at < p.at + p.lifetime_us + coalesce(e.payload ->> 'settle_us', 0)
            THEN '"did not happen", while it still could' END
FROM said s JOIN permits p ON p.job = s.job AND p.key = s.key AND p.permit = s.permit
JOIN events e ON e.job = s.job AND e.seq = s.seq
WHERE s.kind = 'in_doubt_resolved' AND s.outcome = 'did_not_happen'
  -- Who refuses the permit needs no clock; builds that recorded no grounds knew only this one.
  AND coalesce(e.payload ->> 'grounds', 'clock') = 'clock'
UNION ALL
SELECT key, CASE WHEN count(*) <> 2 THEN 'it is in doubt in the ledger or in the list of doubts, and not in both' END
FROM (SELECT key FROM ledger WHERE status = 'in_doubt' AND NOT disproved UNION ALL SELECT DISTINCT key FROM listed_doubts)
WHERE (SELECT quiet FROM run) GROUP BY key
