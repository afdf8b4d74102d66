-- A9: only held jobs are reclaimed, each holder once. Cases are reclaims.
SELECT job || ' ' || seq AS place,
       CASE WHEN before IS NOT 'job_claimed' THEN 'reclaimed while nobody held it' END AS violation
FROM (SELECT job, seq, kind, payload, lag(kind) OVER (PARTITION BY job ORDER BY seq) AS before FROM events
      WHERE kind IN ('job_claimed', 'job_requeued', 'job_waiting', 'job_paused', 'job_completed', 'job_failed', 'job_cancelled'))
WHERE kind = 'job_requeued' AND payload ->> 'reason' IN ('lease_expired', 'holder_died')
