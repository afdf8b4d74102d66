SELECT num, seq, generation, epoch, status, head, updated_at, not_before, lease_until, attempt, instance, worker,
       end_requested, plan_hash, error, waiting, jobs.id, agent, agent_version, priority, session, labels, created_at,
       pause_reason, paused_at, (SELECT name FROM tenants WHERE tenants.num = jobs.tenant) AS tenant
FROM job_labels AS label CROSS JOIN jobs ON jobs.id = label.job
WHERE label.tenant = ?10 AND jobs.tenant = ?10 AND label.key = ?7 AND label.value = ?8 AND label.job < ?1
  AND (?2 IS NULL OR agent = ?2) AND (?3 IS NULL OR session = ?3) AND (?4 >> status) & 1
  AND (?5 = 0 OR wait_type IS NOT NULL) AND (?5 < 2 OR (wait_type <> 2 AND wait_type <> 4) OR CASE WHEN json_valid(waiting) THEN waiting ->> 'doubt' ELSE 1 END) AND (?6 IS NULL OR wait_type = ?6)
ORDER BY label.job DESC LIMIT ?9
