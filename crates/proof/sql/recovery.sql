-- From the death of a worker to the next claim of each job that it held, in microseconds. Times in which the
-- clock was made to jump say nothing and are left out.
SELECT next.at - n.began
FROM nemesis n
JOIN events held ON held.kind = 'job_claimed' AND held.payload ->> 'worker' = n.target AND held.at <= n.began
JOIN events back ON back.job = held.job AND back.seq = (
    SELECT min(e.seq) FROM events e WHERE e.job = held.job AND e.seq > held.seq
    AND e.kind IN ('job_requeued', 'job_waiting', 'job_paused', 'job_completed', 'job_failed', 'job_cancelled'))
JOIN events next ON next.job = held.job AND next.seq = (
    SELECT min(e.seq) FROM events e WHERE e.job = held.job AND e.seq > back.seq AND e.kind = 'job_claimed')
WHERE n.fault IN ('worker_kill', 'worker_kill_starting') AND back.kind = 'job_requeued'
  AND back.payload ->> 'reason' = 'lease_expired' AND back.at > n.began
  AND NOT EXISTS (SELECT 1 FROM nemesis c WHERE c.fault LIKE 'clock%' AND c.began BETWEEN n.began - 5000000 AND next.at)
