-- E1: an acknowledged signal is consumed or visible. Cases are signals, acknowledged, or delivered, or kept.
WITH acked AS (
    SELECT s.*,
           (SELECT d.payload_hash FROM delivered d WHERE d.job = s.job AND d.key = s.key ORDER BY d.seq DESC LIMIT 1) AS found,
           (SELECT sha256(i.payload) FROM inbox i WHERE i.job = s.job AND i.key = s.key AND i.state = 0 ORDER BY i.num LIMIT 1) AS kept
    FROM signals s JOIN jobs j ON j.job = s.job
)
SELECT job || ' ' || key AS place,
       CASE WHEN coalesce(found, CASE ack WHEN 'kept' THEN kept END) IS NULL THEN 'it was acknowledged (' || ack || ') and is nowhere'
            WHEN payload_hash <> coalesce(found, kept) THEN 'another payload stands in its place' END AS violation
FROM acked
UNION ALL
SELECT d.job || ' ' || d.key,
       CASE WHEN EXISTS (SELECT 1 FROM inbox i WHERE i.job = d.job AND i.key = d.key AND i.state = 0)
            THEN 'it was delivered and is still kept' END
FROM (SELECT DISTINCT job, key FROM delivered) d
UNION ALL
SELECT i.job || ' ' || i.key,
       CASE WHEN j.waiting ->> 'correlation_key' = i.key AND (i.wait_type IS NULL OR i.wait_type = j.waiting ->> 'wait_type')
            THEN 'the job waits for it, and it lies in its inbox' END
FROM inbox i JOIN jobs j ON j.job = i.job WHERE i.state = 0
