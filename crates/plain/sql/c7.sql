-- C7: one outcome per call, and it was used. Cases are effects, and once more those whose body has answered.
WITH known AS (
    SELECT x.*, sha256(x.result) AS hash,
           (SELECT count(*) FROM effects o WHERE o.job = x.job AND o.key = x.key) AS times,
           (SELECT s.result_hash FROM said s WHERE s.job = x.job AND s.key = x.key AND s.kind = 'command_committed'
            ORDER BY s.seq DESC LIMIT 1) AS used,
           EXISTS (SELECT 1 FROM ledger l WHERE l.job = x.job AND l.key = x.key AND l.permit = x.permit
                   AND l.status = 'committed') AS is_current,
           (SELECT w.node FROM witness w WHERE w.job = x.job AND w.key = x.key AND w.kind = 'body_end' ORDER BY w.line LIMIT 1)
               AS node
    FROM effects x
)
SELECT job || ' ' || key AS place,
       CASE WHEN times <> 1 OR used <> hash OR NOT is_current THEN 'it is not the one outcome that was used' END AS violation
FROM known
UNION ALL
SELECT k.job || ' ' || k.key,
       CASE WHEN NOT EXISTS (SELECT 1 FROM witness w WHERE w.job = k.job AND w.key = k.key AND w.kind = 'body_end'
                             AND w.result_hash = k.hash) THEN 'it is none of the answers that its bodies gave' END
FROM known k
WHERE EXISTS (SELECT 1 FROM witness w WHERE w.job = k.job AND w.key = k.key AND w.kind = 'body_end' AND w.result_hash IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM said s WHERE s.job = k.job AND s.node = k.node AND s.kind = 'in_doubt_resolved'
                  AND s.resolver IN ('operator', 'reconcile'))
