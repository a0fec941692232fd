"""The nodes of a job as users see them: in the answer of the queue's route, and in `pai-sdk top --queue`."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from pai_sdk import Session
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.session.default import default_session_from
from pai_sdk._service.embedded import ensure_running
from pai_sdk.cli.root import app
from tests.service.services import Client
from tests.support.waiting import until


def hosts_of(job: TrainingJob, count: int) -> dict[str, str]:
    """Where the instances of a job run whose first line is the name of the host; returns when all have said it."""
    hosts: dict[str, str] = {}
    for line in job.logs(follow=True):
        hosts.setdefault(line.instance, line.text)
        if len(hosts) == count:
            return hosts
    raise AssertionError(f"the job ended after {hosts}")


def nodes_in_queue(folder: Path, job: TrainingJob) -> dict[str, str]:
    """The node of each instance, when all are known; the command prints the same as the route answers."""

    def answered() -> dict[str, str]:
        started = Client(ensure_running(folder)).get("/queue")["started"]
        (instances,) = [each["instances"] for each in started if each["id"] == job.id]
        nodes = {each["name"]: each.get("node") for each in instances}
        return nodes if all(nodes.values()) else {}

    nodes = until(answered, "the nodes of all instances")
    with Session.embedded(folder) as session, default_session_from(lambda: session):
        shown = CliRunner().invoke(app, ["top", "--queue", "--once"], env={"COLUMNS": "300"})
    assert shown.exit_code == 0, shown.output
    rows = [row.split() for row in shown.stdout.splitlines() if job.id in row]
    assert {f"{job.id}-{row[2]}": row[0] for row in rows} == nodes, shown.stdout
    return nodes
