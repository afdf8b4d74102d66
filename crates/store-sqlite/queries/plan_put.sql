INSERT INTO plans (hash, doc) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING
