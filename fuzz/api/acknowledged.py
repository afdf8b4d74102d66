"""Asks a server for every job that it has acknowledged: `acknowledged.py URL FILE`. Fails if one is gone."""

import sys

import requests

url, file = sys.argv[1:]
jobs = open(file).read().split()
session = requests.Session()
lost = [job for job in jobs if session.get(f"{url}/api/jobs/{job}").status_code != 200]
broken = [job for job in jobs[:200] if not session.get(f"{url}/api/jobs/{job}/verify").json()["valid"]]
print(f"{len(jobs)} acknowledged jobs, {len(lost)} lost; {min(len(jobs), 200)} verified, {len(broken)} broken")
sys.exit(1 if lost or broken else 0)
