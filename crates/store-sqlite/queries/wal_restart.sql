PRAGMA wal_checkpoint(RESTART)
