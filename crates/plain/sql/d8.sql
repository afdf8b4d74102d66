-- D8: no step before the plan, one plan per version. Cases are jobs with steps.
WITH plans AS (
    SELECT job, seq, payload ->> 'plan_version' AS version, row_number() OVER (PARTITION BY job ORDER BY seq) AS place_of
    FROM events WHERE kind = 'plan_generated'
), steps AS (
    SELECT job, min(seq) AS seq FROM events
    WHERE kind IN ('node_started', 'node_skipped', 'tool_invocation_started', 'value_recorded', 'node_refining', 'child_started', 'child_ended')
      -- What makes the plan comes before it.
      AND payload ->> 'node' NOT GLOB '$plan*' GROUP BY job
)
SELECT s.job AS place,
       CASE WHEN NOT EXISTS (SELECT 1 FROM plans p WHERE p.job = s.job AND p.seq < s.seq)
              OR EXISTS (SELECT 1 FROM plans p WHERE p.job = s.job AND p.version <> p.place_of)
            THEN 'a step does not stand behind its plan' END AS violation
FROM steps s
