SELECT count(*), coalesce(sum(octet_length(payload)), 0), coalesce(sum(memory), 0) FROM inbox
WHERE job = ?1 AND state = 0
