"""Asks a server for every job that it has acknowledged: `acknowledged.py URL FILE`. Fails if one is gone.

A server that has just been started may be unable to answer yet: it is asked again for up to 30 s, as a client would.
"""

import sys
import time

import requests

RETRYABLE = {429, 503}
PATIENCE_SECONDS = 30.0

url, file = sys.argv[1:]
jobs = open(file).read().split()
session = requests.Session()


def get(path):
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = session.get(f"{url}{path}")
        if answer.status_code not in RETRYABLE or time.monotonic() > until:
            return answer
        print(f"{path}: {answer.status_code} {answer.text}")
        time.sleep(0.2)


lost, broken = [], []
for job in jobs:
    answer = get(f"/api/jobs/{job}")
    if answer.status_code != 200:
        print(f"{job} is gone: {answer.status_code} {answer.text}")
        lost.append(job)
for job in jobs[:200]:
    answer = get(f"/api/jobs/{job}/verify")
    if answer.status_code != 200 or not answer.json()["valid"]:
        print(f"{job} is not whole: {answer.status_code} {answer.text}")
        broken.append(job)
print(f"{len(jobs)} acknowledged jobs, {len(lost)} lost; {min(len(jobs), 200)} verified, {len(broken)} broken")
sys.exit(1 if lost or broken else 0)
