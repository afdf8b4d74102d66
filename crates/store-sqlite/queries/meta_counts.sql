SELECT pending, running, waiting, parked, completed, failed, cancelled FROM meta WHERE id = 1
