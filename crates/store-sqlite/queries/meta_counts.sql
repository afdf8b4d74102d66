SELECT pending, running, waiting, parked, completed, failed, cancelled, paused FROM meta WHERE id = 1
