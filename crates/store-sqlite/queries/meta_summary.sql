SELECT generation, pending + running + waiting + parked + paused + completed + failed + cancelled,
       pending + running + waiting + parked + paused
FROM meta WHERE id = 1
