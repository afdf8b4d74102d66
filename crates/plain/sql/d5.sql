-- D5: a job is made whole, with its plan or with what that is made by, and once per client key. Cases are jobs, and messages under a key.
SELECT j.job AS place,
       CASE WHEN (SELECT group_concat(kind || ' ' || at, ',') FROM (SELECT kind, 0 AS at FROM events e
                  WHERE e.job = j.job AND e.seq IN (1, 2) ORDER BY e.seq)) IS NOT 'job_created 0,plan_generated 0'
                   AND (SELECT e.payload ->> 'planning' FROM events e WHERE e.job = j.job AND e.seq = 1) IS NULL
              OR (SELECT count(DISTINCT e.at) FROM events e WHERE e.job = j.job AND e.seq IN (1, 2) AND e.kind IN ('job_created', 'plan_generated')) <> 1
            THEN 'it was not created with its plan in one write' END AS violation
FROM jobs j
UNION ALL
SELECT s.client_key,
       CASE WHEN s.job <> first_value(s.job) OVER (PARTITION BY s.client_key ORDER BY s.num)
            THEN 'the key was answered with two jobs' END
FROM submissions s WHERE s.client_key IS NOT NULL
