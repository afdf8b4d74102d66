-- E2: a wait ends exactly once. Cases are waits.
WITH numbered AS (
    SELECT job, seq, kind, payload,
           count(CASE WHEN kind = 'job_waiting' THEN 1 END) OVER (PARTITION BY job ORDER BY seq) AS wait
    FROM events WHERE kind IN ('job_waiting', 'wait_completed', 'in_doubt_resolved', 'job_claimed')
), marks AS (
    SELECT *, min(CASE WHEN kind = 'job_claimed' THEN seq END) OVER (PARTITION BY job, wait) AS left_at,
           min(CASE WHEN kind = 'wait_completed' THEN seq END) OVER (PARTITION BY job, wait) AS completed_at
    FROM numbered
), waits AS (
    SELECT job, wait, min(seq) AS seq, max(left_at) IS NOT NULL AS gone,
           count(CASE WHEN kind = 'wait_completed' THEN 1 END)
           + max(kind = 'in_doubt_resolved' AND seq < coalesce(left_at, seq + 1) AND seq < coalesce(completed_at, seq + 1)) AS ends
    FROM marks WHERE wait > 0 GROUP BY job, wait
)
SELECT job || ' ' || seq AS place,
       CASE WHEN ends > 1 OR (gone AND ends <> 1) THEN 'the wait ended ' || ends || ' times' END AS violation
FROM waits
UNION ALL
SELECT DISTINCT job, 'it ends a wait that never began' FROM numbered WHERE wait = 0 AND kind = 'wait_completed'
