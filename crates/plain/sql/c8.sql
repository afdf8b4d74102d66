-- C8: effect, ledger and events agree. Cases are committed calls, and jobs that failed as a call had succeeded before.
WITH calls AS (
    SELECT DISTINCT p.job, p.key FROM permits p
), known AS (
    SELECT c.*, l.permit, l.status, j.status AS job_status,
           (SELECT s.at FROM said s WHERE s.job = c.job AND s.key = c.key AND s.kind = 'command_committed'
            ORDER BY s.seq DESC LIMIT 1) AS committed_at,
           (SELECT s.at FROM said s WHERE s.job = c.job AND s.key = c.key AND s.kind = 'node_finished'
            AND s.result = 'side_effect_committed' ORDER BY s.seq DESC LIMIT 1) AS finished_at,
           (SELECT s.outcome FROM said s WHERE s.job = c.job AND s.key = c.key AND s.kind = 'tool_invocation_finished'
            AND s.permit = l.permit ORDER BY s.seq DESC LIMIT 1) AS outcome,
           EXISTS (SELECT 1 FROM effects x WHERE x.job = c.job AND x.key = c.key AND x.permit = l.permit) AS has_effect,
           EXISTS (SELECT 1 FROM said s WHERE s.job = c.job AND s.key = c.key AND s.kind = 'in_doubt_resolved'
                   AND s.permit = l.permit AND s.outcome = 'did_not_happen') AS disproof
    FROM calls c JOIN jobs j ON j.job = c.job LEFT JOIN ledger l ON l.job = c.job AND l.key = c.key
)
SELECT job || ' ' || key AS place,
       CASE WHEN status IS NOT 'committed' THEN 'its events have an effect, its ledger row has none'
            WHEN NOT has_effect THEN 'the ledger has it committed, and there is no effect'
            WHEN committed_at IS NOT NULL AND (outcome IS NOT 'committed' OR finished_at IS NOT committed_at)
            THEN 'its events are not whole'
            WHEN committed_at IS NULL AND job_status = 'completed' AND NOT disproof THEN 'the job has completed without it' END AS violation
FROM known WHERE status = 'committed' OR committed_at IS NOT NULL
UNION ALL
-- Such a job has that success as late evidence, and had not taken it in when it failed.
SELECT e.job || ' ' || e.seq,
       CASE WHEN NOT EXISTS (
            SELECT 1 FROM evidence v
            WHERE v.job = e.job AND v.conflict AND v.outcome ->> 'outcome' = 'success'
              AND EXISTS (SELECT 1 FROM calls c WHERE c.job = v.job AND c.key = v.key)
              AND NOT EXISTS (SELECT 1 FROM effects x WHERE x.job = v.job AND x.key = v.key AND x.at <= e.at))
            THEN 'it failed as a call had succeeded before, and no success is kept that was not taken in' END
FROM events e
WHERE e.kind = 'job_failed' AND e.payload ->> '$.error.code' = 'succeeded_before' AND e.payload ->> 'node' IS NULL
