-- E2: a wait ends exactly once, and its job is taken up for what can go on. Cases are waits.
WITH marked AS (
    -- A claim right after the job began to wait: nothing of it could go on.
    SELECT job, seq, kind, payload ->> 'node' AS node,
           kind = 'job_claimed' AND lag(kind) OVER (PARTITION BY job ORDER BY seq) = 'job_waiting' AS untimely
    FROM events WHERE kind IN ('job_waiting', 'wait_completed', 'child_ended', 'in_doubt_resolved', 'job_requeued', 'job_claimed')
), begun AS (
    -- A wait that goes on may be told of again.
    SELECT *, kind = 'job_waiting' AND lag(kind) OVER (PARTITION BY job, node ORDER BY seq) IS NOT 'job_waiting' AS begins
    FROM marked WHERE node IS NOT NULL
), numbered AS (
    SELECT *, sum(begins) OVER (PARTITION BY job, node ORDER BY seq) AS wait FROM begun
), marks AS (
    SELECT *, min(CASE WHEN kind IN ('wait_completed', 'child_ended') THEN seq END) OVER (PARTITION BY job, node, wait) AS completed_at FROM numbered
), waits AS (
    SELECT job, node, wait, min(seq) AS seq,
           min(CASE WHEN kind IN ('wait_completed', 'child_ended', 'in_doubt_resolved') THEN seq END) AS ended_at,
           count(CASE WHEN kind IN ('wait_completed', 'child_ended') THEN 1 END)
           + max(kind = 'in_doubt_resolved' AND seq < coalesce(completed_at, seq + 1)) AS ends
    FROM marks WHERE wait > 0 GROUP BY job, node, wait
), untimely AS (
    SELECT job, seq FROM marked WHERE untimely
)
SELECT job || ' ' || seq AS place,
       CASE WHEN ends > 1 THEN 'the wait ended ' || ends || ' times'
            WHEN EXISTS (SELECT 1 FROM untimely u WHERE u.job = w.job AND u.seq > w.seq AND u.seq < coalesce(w.ended_at, u.seq + 1))
            THEN 'its job was claimed, and the wait had not ended' END AS violation
FROM waits w
UNION ALL
SELECT DISTINCT job, 'it ends a wait that never began' FROM numbered WHERE wait = 0 AND kind = 'wait_completed'
