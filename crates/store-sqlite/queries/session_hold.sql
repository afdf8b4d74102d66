UPDATE jobs SET ready = 0
WHERE agent = ?1 AND session = ?2 AND session IS NOT NULL AND status < 4 AND id > ?3 AND ready = 1
