"""What Schemathesis does not know of this server: which agents and jobs there are, and how a client behaves
whose server is killed.

* Ids that were made up are often replaced by those of jobs that exist, so that requests get beyond 404.
* `wait=` is cut to 20 ms, or long polls of jobs that never end would be all that is done.
* Event streams are asked of jobs that have ended: those end too. Others would be read for ever.
* A broken connection is asked again, as a client does, while the server is started anew.

Counts and what was acknowledged go to the folder AETHERIS_API_FUZZ at the end.
"""

import atexit
import json
import os
import pathlib
import re
import threading
import time
from collections import Counter

import requests
import schemathesis
import yaml
from schemathesis import GenerationMode

FOLDER = pathlib.Path(os.environ["AETHERIS_API_FUZZ"])
URL = os.environ["AETHERIS_API_FUZZ_URL"]
AGENTS = {path.stem: yaml.safe_load(path.read_text()) for path in (FOLDER / "agents").glob("*.yaml")}
# An agent of no file, which only clients put and delete.
PASSING = "passing"
RETRYABLE = {"store_unavailable", "overloaded"}
RECONNECT_SECONDS = 30.0
JOBS_REMEMBERED = 64
TURNS_BETWEEN_LOOKS = 50
# The time after which the first calls are in doubt: their tool's timeout and some more.
DOUBT_SECONDS = 2.5

JOB = re.compile(r"job_[0-9A-Z]{26}")
NO_JOB = "job_00000000000000000000000000"
DURATION = re.compile(r"\d{1,9}(us|ms|s|m|h|d)")

lock = threading.Lock()
statuses = Counter()
operations = Counter()
codes = Counter()
broken = Counter()
acknowledged = set()
recent = []
ended = []
doubted = []
# Agents that a client was told are gone, and that nobody may have put since: how often each was put before it was deleted.
gone = {}
puts = Counter()
puts_before = {}
turn = 0


def next_turn():
    global turn
    with lock:
        turn += 1
        return turn


def positive(case, *locations):
    meta = case.meta
    if meta is None:
        return True
    if meta.generation.mode != GenerationMode.POSITIVE:
        return False
    modes = {location.value: info.mode for location, info in meta.components.items()}
    return all(modes.get(location, GenerationMode.POSITIVE) == GenerationMode.POSITIVE for location in locations)


def one_of(choices, at):
    return choices[at % len(choices)] if choices else None


def look():
    """What there is by now: jobs of every agent, those that have ended, and calls in doubt."""
    session = requests.Session()
    answers = [
        session.post(f"{URL}/api/agents/{agent}/message", json={"message": {"order": 7}}) for agent in sorted(AGENTS)
    ]
    answers.append(session.get(f"{URL}/api/in-doubt"))
    answers.append(session.get(f"{URL}/api/jobs?status=completed,failed,cancelled"))
    with lock:
        for answer in answers:
            if answer.ok:
                remember(answer.json())


@schemathesis.hook
def before_call(context, case, kwargs):
    at = next_turn()
    if at == 1:
        look()
        time.sleep(DOUBT_SECONDS)
    if at % TURNS_BETWEEN_LOOKS == 1:
        look()
    operation = case.operation.definition.raw.get("operationId")
    path = case.path_parameters or {}
    # Also where something else in the request is wrong: it may be wrong in a way that the server lets pass.
    if DURATION.fullmatch(str((case.query or {}).get("wait"))):
        case.query["wait"] = "20ms"
    # Whatever is wrong in the request: it may be served all the same, and with an id that an answer had.
    if operation == "stream_events" and JOB.fullmatch(str(path.get("id"))) and path["id"] not in ended:
        with lock:
            path["id"] = one_of(ended, at) or NO_JOB
    if operation in ("put_agent", "get_agent", "delete_agent") and at % 3 == 0:
        path["agent"] = PASSING
        if operation == "put_agent" and at % 2:
            case.body = {**next(iter(AGENTS.values())), "agent": PASSING}
    agent = path.get("agent")
    if operation == "put_agent" and isinstance(agent, str):
        # Whatever comes of it: an answer may be lost.
        with lock:
            puts[agent] += 1
            gone.pop(agent, None)
    if operation == "delete_agent" and isinstance(agent, str):
        puts_before[id(case)] = puts[agent]
    if not positive(case, "path", "query", "header", "body"):
        return
    if operation != "stream_events" and "id" in path and path["id"] not in acknowledged and at % 8:
        with lock:
            job = one_of(recent, at)
        if job:
            path["id"] = job
    if operation == "resolve_in_doubt" and doubted and at % 4:
        path["id"], path["invocation"] = doubted[at % len(doubted)]
    known = (*AGENTS, PASSING)
    if "agent" in path and operation != "delete_agent" and path["agent"] not in known and at % 4:
        path["agent"] = one_of(sorted(AGENTS), at)
        if operation == "put_agent" and at % 2:
            case.body = AGENTS[path["agent"]]
    if operation == "signal_job" and isinstance(case.body, dict) and at % 2:
        case.body["correlation_key"] = "ok"


def remember(value):
    job = value.get("job_id")
    if isinstance(job, str) and job.startswith("job_"):
        acknowledged.add(job)
        recent.append(job)
        del recent[:-JOBS_REMEMBERED]
    for row in value.get("jobs") or []:
        if row.get("status") in ("completed", "failed", "cancelled"):
            ended.append(row["id"])
            del ended[:-JOBS_REMEMBERED]
    for row in value.get("invocations") or []:
        doubted.append((row["job_id"], row["invocation"]))
        del doubted[:-JOBS_REMEMBERED]


@schemathesis.hook
def after_call(context, case, response):
    operation = case.operation.definition.raw.get("operationId")
    try:
        value = json.loads(response.content)
    except ValueError:
        value = None
    with lock:
        statuses[response.status_code] += 1
        operations[f"{operation} {response.status_code}"] += 1
        if isinstance(value, dict):
            if response.status_code < 300:
                remember(value)
            elif "code" in value:
                codes[str(value["code"])] += 1


@schemathesis.check
def right_requests_are_refused_for_a_reason(ctx, response, case):
    """What a schema of any JSON value cannot say, and nothing else: integers beyond 64 bits or written as 7.0, keys
    of no wait, durations beyond ten years."""
    if response.status_code != 400 or case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    problem = json.loads(response.content)
    if problem["code"] == "wrong_correlation_key":
        return
    detail = problem["detail"]
    allowed = (
        "at most ten years",
        "would be another when it is read",
        "deeper than",
        " is of type ",
        "has no result",
        "belongs to `did_not_happen`",
        "what happened is not tried again",
        ".0`, expected u32",
    )
    assert any(words in detail for words in allowed), f"refused although the schema allows it: {detail}"


@schemathesis.check
def what_was_deleted_is_gone(ctx, response, case):
    """Over kills too, where Schemathesis's own check is left out: `dev` puts the agents of its files again at each
    start, and nobody puts another."""
    operation = case.operation.definition.raw.get("operationId")
    agent = (case.path_parameters or {}).get("agent")
    if not isinstance(agent, str) or agent in AGENTS:
        return
    if operation == "delete_agent" and response.status_code < 300:
        with lock:
            # One that was put meanwhile may be there.
            if puts[agent] == puts_before.pop(id(case), None):
                gone[agent] = puts[agent]
    elif operation == "get_agent" and agent in gone:
        codes["asked for an agent that was deleted"] += 1
        assert response.status_code >= 400, f"`{agent}` was deleted, and is there again"


@schemathesis.check
def errors_are_told(ctx, response, case):
    """Every error is a problem with a detail; a 5xx names a code that may be retried, and says when."""
    if response.status_code < 400 or case.method.upper() == "HEAD":
        return
    problem = json.loads(response.content)
    assert problem["status"] == response.status_code, "the problem names another status"
    assert problem["detail"].strip(), "the problem has no detail"
    if response.status_code >= 500 and response.status_code != 501:
        assert problem["code"] in RETRYABLE, f"a 5xx with code {problem['code']}"
        assert "retry-after" in response.headers, "a retryable 5xx without Retry-After"


send = requests.Session.send


def patient(self, request, **kwargs):
    until = time.monotonic() + RECONNECT_SECONDS
    while True:
        try:
            response = send(self, request, **kwargs)
            # A stream is read to its end here, so that it is asked again as a whole when it breaks.
            _whole = response.content
            return response
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            with lock:
                broken[type(error).__name__] += 1
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


if os.environ.get("AETHERIS_API_FUZZ_KILLS") == "1":
    requests.Session.send = patient


@atexit.register
def write():
    counts = {
        "requests": sum(statuses.values()),
        "broken_connections": sum(broken.values()),
        "acknowledged_jobs": len(acknowledged),
        "statuses": dict(sorted(statuses.items())),
        "codes": dict(codes.most_common()),
        "operations": dict(sorted(operations.items())),
    }
    (FOLDER / "counts.json").write_text(json.dumps(counts, indent=1))
    (FOLDER / "acknowledged.txt").write_text("".join(f"{job}\n" for job in sorted(acknowledged)))
