-- D8: no step before the plan but those that make it, one plan per version. Cases are jobs with steps.
WITH plans AS (
    SELECT job, seq, payload ->> 'plan_version' AS version, row_number() OVER (PARTITION BY job ORDER BY seq) AS place_of
    FROM events WHERE kind = 'plan_generated'
), steps AS (
    SELECT job, min(iif(coalesce(payload ->> 'node' GLOB '$plan*', 0), NULL, seq)) AS own,
           max(iif(coalesce(payload ->> 'node' GLOB '$plan*', 0), seq, NULL)) AS planning
    FROM events
    WHERE kind IN ('node_started', 'node_finished', 'node_skipped', 'tool_invocation_started', 'value_recorded', 'node_refining', 'child_started', 'child_ended',
                   'job_completed') GROUP BY job
)
SELECT s.job AS place,
       CASE WHEN s.own IS NOT NULL AND NOT EXISTS (SELECT 1 FROM plans p WHERE p.job = s.job AND p.seq < s.own)
              OR EXISTS (SELECT 1 FROM plans p WHERE p.job = s.job AND p.version <> p.place_of)
              OR EXISTS (SELECT 1 FROM plans p WHERE p.job = s.job AND p.seq < s.planning)
              OR s.planning IS NOT NULL
                 AND (SELECT c.payload ->> 'planning' FROM events c WHERE c.job = s.job AND c.seq = 1) IS NULL
            THEN 'a step does not stand behind its plan' END AS violation
FROM steps s
