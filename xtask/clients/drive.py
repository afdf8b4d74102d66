"""Drives one job through the client that openapi-python-client makes of the document."""

import json
import sys

from aetheris_client import Client
from aetheris_client.api.agents import put_agent
from aetheris_client.api.evidence import list_events, verify_job
from aetheris_client.api.jobs import get_job, send_message
from aetheris_client.api.people import list_waits, signal_job
from aetheris_client.models import (
    AgentFile,
    AgentPut,
    EventPage,
    JobCompletedEvent,
    JobCreatedEvent,
    JobView,
    MessageAnswer,
    MessageRequest,
    Problem,
    SignalRequest,
    SignalResult,
    VerifyView,
    WaitCompletedEvent,
    WaitList,
)

LOOKS = 100


def expect(value, kind):
    """The value, if it is of a kind."""
    if not isinstance(value, kind):
        raise SystemExit(f"expected {kind.__name__}, found {value!r}")
    return value


def awaited(client, job, statuses):
    """The job, once it is in one of these states."""
    for _ in range(LOOKS):
        view = expect(get_job.sync(job, client=client, wait="200ms"), JobView)
        if view.status in statuses:
            return view
    raise SystemExit(f"{job} is {view.status}, none of {statuses}")


def main(url, agent):
    client = Client(base_url=url)
    file = AgentFile.from_dict(json.loads(agent))
    put = expect(put_agent.sync("clients", client=client, body=file), AgentPut)
    message = MessageRequest(message={"order": 7})
    sent = expect(send_message.sync("clients", client=client, body=message, idempotency_key="python"), MessageAnswer)
    again = expect(send_message.sync("clients", client=client, body=message, idempotency_key="python"), MessageAnswer)
    assert again.job_id == sent.job_id, (again, sent)

    job = sent.job_id
    waiting = awaited(client, job, ("waiting", "parked"))
    waits = expect(list_waits.sync(client=client, wait_type="human"), WaitList)
    key = next(wait.correlation_key for wait in waits.waits if wait.job_id == job)
    assert key == waiting.waiting.correlation_key == f"ok-{job}", (key, waiting.waiting)
    wrong = SignalRequest(correlation_key="wrong", payload=1)
    refused = expect(signal_job.sync(job, client=client, body=wrong), Problem)
    assert refused.code == "wrong_correlation_key", refused
    answer = SignalRequest(correlation_key=key, payload={"yes": True})
    delivered = expect(signal_job.sync(job, client=client, body=answer), SignalResult)
    assert delivered.status == "delivered", delivered

    done = awaited(client, job, ("completed", "failed", "cancelled"))
    assert (done.status, done.result) == ("completed", {"order": 7, "said": {"yes": True}}), done
    page = expect(list_events.sync(job, client=client, limit=1000), EventPage)
    assert [event.seq for event in page.events] == list(range(1, len(page.events) + 1)), page
    created = expect(page.events[0], JobCreatedEvent)
    assert (created.payload.agent, created.payload.message) == ("clients", {"order": 7}), created
    assert any(isinstance(event, WaitCompletedEvent) for event in page.events), page
    expect(page.events[-1], JobCompletedEvent)
    assert expect(verify_job.sync(job, client=client), VerifyView).valid
    print(f"python: {job} of {put.agent} {put.version}: {len(page.events)} events, each of its kind")


main(*sys.argv[1:])
