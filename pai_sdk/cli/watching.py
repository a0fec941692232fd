"""`pai-sdk watch`: applies rules to a running job, and sends messages about what they report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pai_sdk._client.job.rule_watch import RuleWatch
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._data.notify.targets import Target, target_of
from pai_sdk._data.rules.codec import parse_rules
from pai_sdk._data.rules.signals import Finding
from pai_sdk.cli import exit_codes
from pai_sdk.cli.options import Json
from pai_sdk.cli.selection.job_names import JobId, find_job
from pai_sdk.cli.tables import print_error, print_json
from pai_sdk.errors import InvalidInputError, Problem


def watch(
    job_id: JobId,
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE",
            help='Rules in place of those of their kind, such as [{"rule": "NoProgress", "min_s": 600}].',
        ),
    ] = None,
    notify: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A target of messages about findings, as in the parameter `notify`; may be repeated.",
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="The time between two reads of log and metrics.")
    ] = 30.0,
    as_json: Json = False,
) -> None:
    """Apply rules to a running job until it finishes: no progress, NaN, a jump of a loss, idle GPUs, a late end.

    For jobs on Alibaba Cloud: services of this package apply the rules themselves. Here, log and metrics are read
    from outside. A finding whose rule has the action stop or restart stops the job. The exit code is that of the
    job's status: 0 succeeded, 100 failed, 103 stopped.

    Example: pai-sdk watch train129f212o89d --notify https://example.com/hook
    """
    explicit = [] if rules is None else parse_rules(_text_of(rules), "--rules")
    targets = [target_of(url, "--notify") for url in notify or ()]
    job = find_job(job_id)
    if not as_json:
        typer.echo(f"watching {job.id} by rules; Ctrl-C ends this, not the job", err=True)
    for finding in RuleWatch(job, explicit, interval_s=interval).findings():
        _print(job, finding, as_json=as_json)
        if finding.status == "raised" and finding.action != "observe":
            _send(job, finding, targets)
            _act(job, finding)
    if not as_json:
        typer.echo(f"{job.id} is {job.record.status}", err=True)
    raise typer.Exit(exit_codes.of_status(job.record.status))


def _text_of(value: str) -> str:
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError([Problem("--rules", f"{value[1:]} cannot be read: {error.strerror}")]) from error


def _print(job: TrainingJob, finding: Finding, *, as_json: bool) -> None:
    if as_json:
        print_json({"job": job.id, **_fields(finding), "evidence": finding.evidence})
        return
    typer.echo(visible_text(finding.text))
    for name, lines in finding.evidence.get("last_lines", {}).items():
        for line in lines[-3:]:
            typer.echo(f"  {visible_text(name)}: {visible_text(line)}")


def _fields(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "status": finding.status,
        "message": finding.message,
        "instance": finding.instance,
        "action": finding.action,
    }


def _send(job: TrainingJob, finding: Finding, targets: Sequence[Target]) -> None:
    lines: list[str] = [line for each in finding.evidence.get("last_lines", {}).values() for line in each]
    message = {
        "title": f"{job.name}: {finding.code}",
        "code": finding.code,
        "message": finding.message,
        "url": job.console_url,
        "lines": lines,
        "job_id": job.id,
        "name": job.name,
        "status": str(job.record.status),
    }
    for target in targets:
        try:
            target.send(message)
        except Exception as error:  # a target that is away must not end the watch
            print_error(f"{target!r} has not accepted the message: {error}")


def _act(job: TrainingJob, finding: Finding) -> None:
    if finding.action not in ("stop", "restart"):
        return
    job.stop()
    typer.echo(f"{job.id} is being stopped", err=True)
    if finding.action == "restart":
        typer.echo(
            f"it cannot be started again from here; resume={job.id!r} continues from its checkpoint", err=True
        )
