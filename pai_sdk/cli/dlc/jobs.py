"""`dlc get`, `list`, `stop`, `delete`, `logs` and `events`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

import typer

from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.jobs import JobQuery
from pai_sdk._wire.dlc.limits import DEFAULT_MAX_EVENTS, DEFAULT_MAX_LINES, DEFAULT_PAGE_SIZE
from pai_sdk._wire.dlc.logs import EventQuery, JobEvents, PodLogQuery
from pai_sdk._wire.dlc.names import JOB_TYPES, job_type_for
from pai_sdk._wire.dlc.records import JobItem, JobList
from pai_sdk._wire.dlc.resources.ecs_specs import EcsSpecList, EcsSpecQuery
from pai_sdk._wire.dlc.times import seconds_of, wire_time
from pai_sdk._wire.workspace.quotas import QuotaList
from pai_sdk.cli.dlc.connection import DlcConnection
from pai_sdk.cli.dlc.flags import Arguments
from pai_sdk.cli.dlc.output import print_body, print_columns, print_lines, refusal_text
from pai_sdk.errors import ApiError, NotFoundError, Problem

_COLUMNS = (
    "DisplayName",
    "JobId",
    "JobType",
    "WorkspaceId",
    "ResourceId",
    "Priority",
    "GmtCreateTime",
    "Status",
    "Duration",
)
_FIRST_PODS = ("master", "chief", "head")


# ---- get ----------------------------------------------------------------------------------------------------


def get(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    """Prints a job, jobs, events of a pod, instance types or quotas."""
    subject, *positionals = arguments.positionals or [""]
    if subject in ("job", "jobs") and positionals:
        return _print_job(arguments, positionals, connect)
    if subject in ("job", "jobs"):
        return _print_jobs(arguments, connect)
    if subject == "pod":
        return _print_events(arguments, positionals, connect)
    if subject in ("specs", "spec"):
        return _print_specs(arguments, connect)
    if subject in ("quota", "quotas"):
        return _print_quotas(arguments, connect)
    arguments.problems.append(Problem("get", f"{subject!r} is not supported", "available: job, pod, specs, quota"))
    arguments.check()
    return 0


def _print_job(arguments: Arguments, positionals: list[str], connect: Callable[[], DlcConnection]) -> int:
    query = _event_query(arguments)
    (job_id,) = _ids(arguments, positionals, "JOB")
    jobs = connect().jobs
    if arguments.boolean("events_only"):
        print_lines(jobs.events(job_id, query))
        return 0
    body = jobs.get_body(job_id)
    events_body = JobEvents(events=[*jobs.events(job_id, query)]).to_wire() if arguments.boolean("events") else {}
    print_body({**body, **events_body})
    return 0


def _print_jobs(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    number = arguments.number("page_num")
    size = arguments.number("page_size")
    number, size = 1 if number is None else number, DEFAULT_PAGE_SIZE if size is None else size
    arguments.problems += (
        Problem(f"--{name}", f"{value} is less than 1")
        for name, value in (("page_num", number), ("page_size", size))
        if value < 1
    )
    pattern = _pattern(arguments)
    statuses = arguments.items("status")
    query = _job_query(arguments, statuses)
    as_json = arguments.boolean("show_detail") or arguments.text("output") == "json"
    arguments.check()
    connection = connect()
    skip = (number - 1) * size
    is_filtered = pattern is not None or len(statuses) > 1
    # Pages of filtered lists are counted here: the service does not know the filter.
    page_size, skipped = (100, 0) if is_filtered else (min(size, 100), skip)
    jobs = _matching(connection.jobs.list(query, page_size=page_size, skip=skipped), pattern, statuses)
    rows = [*islice(jobs, skip - skipped, skip - skipped + size)]
    if as_json:
        print_body(JobList(jobs=rows).to_wire())
    else:
        print_columns(_COLUMNS, ([job.to_wire().get(name) for name in _COLUMNS] for job in rows))
    return 0


def _pattern(arguments: Arguments) -> re.Pattern[str] | None:
    text = arguments.text("display_name_regex")
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        arguments.problems.append(Problem("--display_name_regex", f"is not a regular expression: {error}"))
        return None


def _job_query(arguments: Arguments, statuses: list[str]) -> JobQuery:
    job_type = arguments.text("job_type")
    if job_type is not None and job_type_for(job_type) is None:
        arguments.problems.append(
            Problem("--job_type", f"{job_type!r} is not a type", f"one of {', '.join(JOB_TYPES)}")
        )
    return JobQuery(
        workspace_id=arguments.text("workspace_id"),
        display_name=arguments.text("display_name"),
        job_type=job_type_for(job_type) if job_type else None,
        status=statuses[0] if len(statuses) == 1 else None,
        resource_id=arguments.text("resource_id"),
        start_time=_time(arguments, "start_time"),
        end_time=_time(arguments, "end_time"),
        sort_by="GmtCreateTime",
        order="desc",
    )


def _matching(jobs: Iterator[JobItem], pattern: re.Pattern[str] | None, statuses: list[str]) -> Iterator[JobItem]:
    wanted = {status.lower() for status in statuses}
    for job in jobs:
        is_of_status = not wanted or (job.status or "").lower() in wanted
        if is_of_status and (pattern is None or pattern.search(job.display_name or "")):
            yield job


def _print_specs(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    query = EcsSpecQuery(
        accelerator_type=arguments.text("accelerator_type"),
        resource_type=arguments.text("resource_type"),
        instance_types=arguments.text("instance_types"),
    )
    arguments.check()
    specs = [*connect().jobs.ecs_specs(query)]
    if arguments.text("output") == "json":
        print_body(EcsSpecList(ecs_specs=specs).to_wire())
        return 0
    names = ("InstanceType", "AcceleratorType", "Cpu", "Memory", "Gpu", "GpuType", "GpuMemory", "IsAvailable")
    print_columns(names, ([spec.to_wire().get(name) for name in names] for spec in specs))
    return 0


def _print_quotas(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    arguments.check()
    # The action has no parameter for the workspace: it lists the quotas that the key may use.
    response = connect().to_workspaces.call("ListQuotas", "GET", "/api/v1/quotas")
    if arguments.text("output") == "json":
        print_body(response.json)
        return 0
    quotas = received(QuotaList, response.json).quotas
    specs = (",".join(f"{spec.name}={spec.value}" for spec in quota.specs) for quota in quotas)
    rows = ([quota.id, quota.name, quota.quota_type, text] for quota, text in zip(quotas, specs, strict=True))
    print_columns(("Id", "Name", "QuotaType", "Specs"), rows)
    return 0


# ---- stop and delete ----------------------------------------------------------------------------------------


def stop(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    """Stops jobs; returns 1 if one of them could not be stopped."""
    return _change(arguments, connect, "stop", "stopped", lambda jobs, job_id: jobs.stop(job_id))


def delete(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    """Deletes jobs; returns 1 if one of them could not be deleted."""
    return _change(arguments, connect, "delete", "deleted", lambda jobs, job_id: jobs.delete(job_id))


def _change(
    arguments: Arguments,
    connect: Callable[[], DlcConnection],
    verb: str,
    done: str,
    change: Callable[[DlcJobs, str], object],
) -> int:
    subject, *job_ids = arguments.positionals or [""]
    if subject not in ("job", "jobs"):
        arguments.problems.append(Problem(verb, f"{subject!r} is not supported", f"write: {verb} job ID"))
    elif not job_ids:
        arguments.problems.append(Problem(verb, "the id of the job is missing"))
    is_quiet, is_forced = arguments.boolean("quiet"), arguments.boolean("force")
    arguments.check()
    jobs = connect().jobs
    exit_code = 0
    for job_id in job_ids:
        if not is_forced and not typer.confirm(f"{verb.capitalize()} job [{job_id}]?"):
            exit_code = 1
            continue
        try:
            change(jobs, job_id)
        except ApiError as error:
            typer.echo(f"[FAILED] {refusal_text(error)}")
            exit_code = 1
        else:
            if not is_quiet:
                typer.echo(f"[OK] Job [{job_id}] was {done} successfully")
    return exit_code


# ---- logs and events ----------------------------------------------------------------------------------------


def logs(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    """Prints the last lines of a pod."""
    count = arguments.number("max_events_num")
    query = PodLogQuery(
        max_lines=DEFAULT_MAX_LINES if count is None else count,
        start_time=_time(arguments, "start_time"),
        end_time=_time(arguments, "end_time"),
    )
    job_id, *pods = _ids(arguments, arguments.positionals, "JOB", "POD")
    jobs = connect().jobs
    pod_id = _pod(job_id, pods[0]) if pods else _first_pod(jobs, job_id)
    try:
        lines = jobs.pod_logs(job_id, pod_id, query).logs
    except NotFoundError:
        names = [pod.pod_id or "" for pod in jobs.get(job_id).pods]
        if pod_id not in names:
            hint = f"available: {', '.join(names)}" if names else f"`dlc get job {job_id} --events` says why"
            typer.echo(f"job {job_id} has no pod {pod_id}; {hint}", err=True)
        raise
    print_lines(lines)
    return 0


def events(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    """Prints the events of a job or a pod."""
    return _print_events(arguments, arguments.positionals, connect)


def _print_events(arguments: Arguments, positionals: list[str], connect: Callable[[], DlcConnection]) -> int:
    query = _event_query(arguments)
    job_id, *pods = _ids(arguments, positionals, "JOB", "POD")
    jobs = connect().jobs
    print_lines(jobs.pod_events(job_id, _pod(job_id, pods[0]), query) if pods else jobs.events(job_id, query))
    return 0


def _event_query(arguments: Arguments) -> EventQuery:
    count = arguments.number("max_events_num")
    return EventQuery(
        max_events_num=DEFAULT_MAX_EVENTS if count is None else count,
        start_time=_time(arguments, "start_time"),
        end_time=_time(arguments, "end_time"),
    )


def _ids(arguments: Arguments, positionals: list[str], *names: str) -> list[str]:
    """Returns the ids among the positionals, of which only the first one is required."""
    if not positionals:
        arguments.problems.append(Problem(names[0], "is required", "give the id of the job"))
    arguments.problems += (
        Problem(word, "is not expected", f"give {' '.join(names)}") for word in positionals[len(names) :]
    )
    arguments.check()
    return positionals


def _pod(job_id: str, text: str) -> str:
    """Returns the id of a pod, for the id or its end such as `worker-0`."""
    return text if text.startswith(job_id) else f"{job_id}-{text}"


def _first_pod(jobs: DlcJobs, job_id: str) -> str:
    """Returns the pod of rank 0."""
    pods = jobs.get(job_id).pods
    firsts = [pod for pod in pods if (pod.type or "").lower() in _FIRST_PODS]
    pod = next(iter([*firsts, *pods]), None)
    return pod.pod_id or "" if pod is not None else f"{job_id}-master-0"


def _time(arguments: Arguments, name: str) -> str | None:
    """Returns a time as the API writes it."""
    text = arguments.text(name)
    moment = seconds_of(text)
    if text is not None and moment is None:
        arguments.problems.append(Problem(f"--{name}", f"{text!r} is not a time", "such as 2026-11-28T05:00:00Z"))
    return wire_time(moment)
