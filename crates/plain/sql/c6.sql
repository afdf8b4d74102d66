-- C6: no body after a recorded outcome, by a run that had seen it; but for what was on its way to an idempotent tool when
-- someone else said how an earlier call had ended. Cases are bodies of calls with an outcome.
WITH outcomes AS (
    SELECT x.job, x.key, min(x.at) AS at FROM effects x GROUP BY x.job, x.key
), held AS (
    SELECT o.*, coalesce((SELECT max(e.fence) FROM events e WHERE e.kind = 'job_claimed' AND e.job = o.job AND e.at <= o.at), 0)
               AS holder
    FROM outcomes o
)
SELECT a.job || ' ' || a.line AS place,
       CASE WHEN a.at > h.at AND a.fence >= h.holder
              AND NOT (EXISTS (SELECT 1 FROM said s WHERE s.job = a.job AND s.node = a.node AND s.kind = 'in_doubt_resolved'
                               AND s.outcome = 'happened' AND s.resolver IN ('operator', 'late_deposit'))
                       AND EXISTS (SELECT 1 FROM permits p WHERE p.job = a.job AND p.key = a.key AND p.fence = a.fence
                                   AND p.at <= h.at)
                       AND NOT EXISTS (SELECT 1 FROM permits p WHERE p.job = a.job AND p.key = a.key
                                       AND p.effect <> 'idempotent'))
            THEN 'a body began after its outcome was recorded' END AS violation
FROM acts a JOIN held h ON h.job = a.job AND h.key = a.key
WHERE a.known
