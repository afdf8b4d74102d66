-- E7: blocked and ended jobs hold no lease. Cases are jobs that nobody runs.
SELECT job AS place,
       CASE WHEN lease_until IS NOT NULL OR nullif(attempt, '') IS NOT NULL THEN 'it is ' || status || ' and held' END AS violation
FROM jobs WHERE status <> 'running'
