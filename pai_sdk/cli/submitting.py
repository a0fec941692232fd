"""The commands that submit jobs: run, submit, clone."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.specs import LOCAL, backend_for_type
from pai_sdk._client.display.base import Silent
from pai_sdk._client.display.choice import choose_display
from pai_sdk._client.display.commands import next_commands
from pai_sdk._client.display.terminal import TerminalDisplay
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.session import get_default_session
from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk._data.notify.targets import target_of
from pai_sdk.cli import exit_codes
from pai_sdk.cli.instances.by_hand import run_by_hand
from pai_sdk.cli.jobs import ignore_further_interrupts, json_of, print_next_commands
from pai_sdk.cli.options import Api, Json, integer_seconds, pairs
from pai_sdk.cli.selection.backend import selected_backend
from pai_sdk.cli.selection.files import check_is_job_file, check_is_plan, run_command
from pai_sdk.cli.selection.job_names import JobId, find_job
from pai_sdk.cli.tables import print_error, print_plan, print_warnings
from pai_sdk.errors import InvalidInputError, JobFailed, JobStopped, Problem

if TYPE_CHECKING:
    from pai_sdk._client.submit.job_file import JobFile

_content = partial(typer.Option, rich_help_panel="What runs")
_location = partial(typer.Option, rich_help_panel="Where it runs")
_action = partial(typer.Option, rich_help_panel="What happens")

Set = Annotated[
    list[str] | None, _content("--set", "-s", metavar="KEY=VALUE", help="A hyperparameter; may be repeated.")
]
Env = Annotated[list[str] | None, _content("--env", "-e", metavar="KEY=VALUE", help="An environment variable.")]
Label = Annotated[list[str] | None, _content("--label", "-l", metavar="KEY=VALUE", help="A label.")]
Input = Annotated[
    list[str] | None, _content("--input", "-i", metavar="NAME=URI", help="An input channel: URI or path.")
]
Output = Annotated[list[str] | None, _content("--output", "-o", metavar="NAME=URI", help="An output channel.")]
Image = Annotated[str | None, _content("--image", help="The image.")]
Command = Annotated[str | None, _content("--command", "-c", help="The command, for `sh -c`.")]
JobName = Annotated[str | None, _content("--name", help="The job's name.")]
InstanceType = Annotated[
    str | None,
    _location(
        "--instance-type",
        "-t",
        help="Such as ecs.c6.large; local: Docker on this machine. Not needed if embedded.",
    ),
]
InstanceCount = Annotated[int | None, _location("--instance-count", min=1, help="The number of instances.")]
MaxRunTime = Annotated[
    int | None,
    _location(
        "--max-run-time",
        metavar="SECONDS",
        parser=integer_seconds,
        help="Maximum run time, in seconds or as 2h; then the job is stopped.",
    ),
]
DryRun = Annotated[bool, _action("--dry-run", help="Print the request as JSON, and submit nothing.")]
Notify = Annotated[
    list[str] | None,
    _action("--notify", metavar="URL", help="Send messages about the job to this target; may be repeated."),
]
Wait = Annotated[bool, _action("--wait/--no-wait", help="Show the log until the job has finished.")]


# The parameters of `run` and `clone` that are keys of a job file: the key (empty for that of the hyperparameters),
# and the option, if it takes pairs. Both commands read them from their context.
_KEYS = {
    "image": ("image_uri", ""),
    "command": ("command", ""),
    "source_dir": ("source_dir", ""),
    "values": ("", "--set"),
    "env": ("environments", "--env"),
    "label": ("labels", "--label"),
    "requirement": ("requirements", ""),
    "inputs": ("inputs", "--input"),
    "outputs": ("outputs", "--output"),
    "job_name": ("job_name", ""),
    "instance_type": ("instance_type", ""),
    "instance_count": ("instance_count", ""),
    "max_run_time": ("max_run_time", ""),
    "api": ("api", ""),
}


def run(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A job file in YAML; options override it.")
    ] = None,
    kind: Annotated[str | None, _content(help="Estimator, Processor or AlgorithmEstimator.")] = None,
    image: Image = None,
    command: Command = None,
    source_dir: Annotated[str | None, _content("--source-dir", "-d", help="The folder with the code.")] = None,
    values: Set = None,
    env: Env = None,
    label: Label = None,
    requirement: Annotated[
        list[str] | None, _content("--requirement", "-r", help="A package for pip to install first: numpy==2.1")
    ] = None,
    inputs: Input = None,
    outputs: Output = None,
    job_name: JobName = None,
    instance_type: InstanceType = None,
    instance_count: InstanceCount = None,
    max_run_time: MaxRunTime = None,
    api: Api = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", "-p", metavar="KEY=VALUE", help="Set any other key of a job file; the value is YAML."
        ),
    ] = None,
    dry_run: DryRun = False,
    save: Annotated[
        Path | None, _action(help="Upload the files and save the plan, for `pai-sdk submit`; submit nothing.")
    ] = None,
    by_hand: Annotated[
        bool, _action("--here", help="Run the command here as if it were in its job, without a service or Docker.")
    ] = False,
    wait: Wait = True,
    notify: Notify = None,
    schema: Annotated[bool, _action("--schema", help="Print the JSON schema of job files, for editors.")] = False,
    as_json: Json = False,
) -> None:
    """Run a job: an Estimator or Processor from a YAML file, from options, or from both.

    Example: pai-sdk run job.yaml --set lr=0.1 --instance-type ecs.c6.large
    """
    if schema:
        from pai_sdk._client.submit.job_file_schema import job_file_schema

        typer.echo(json.dumps(job_file_schema(), ensure_ascii=False, indent=1))
        return
    if not (file or image or kind or parameter or (by_hand and command)):
        options = "--image, --command and --instance-type (the embedded service needs no type)"
        raise typer.BadParameter(f"give a job file such as job.yaml, or {options}")
    if file is not None and context.args:
        raise typer.BadParameter(_extra_arguments_problem(file, context.args), param_hint="FILE")
    if file is not None:
        check_is_job_file(file)
    job_file = job_file_of({**context.params, "instance_type": _effective_type(instance_type)})
    if by_hand:
        run_by_hand(job_file)
    submitter, plan = job_file.plan()
    plan = with_targets(plan, notify)
    if dry_run:
        print_plan(plan)
    elif save is not None:
        _upload_and_save(plan, submitter.instance_type, save)
    else:
        _submit(plan, submitter.instance_type, wait=wait, as_json=as_json)


def with_targets(plan: Plan, urls: Sequence[str] | None) -> Plan:
    """Returns the plan with the targets of `--notify`."""
    return replace(plan, notify=(*plan.notify, *(target_of(url, "--notify") for url in urls or ())))


def _extra_arguments_problem(file: Path, arguments: Sequence[str]) -> str:
    """Describes arguments after the file: values of hyperparameters, or the program of a command."""
    if file.suffix.lower() in (".yaml", ".yml"):
        values = [f"--set {shlex.quote(each)}" for each in arguments if "=" in each]
        hint = f"; a hyperparameter is {' '.join(values)}" if values else ""
        return f"takes one job file{hint}"
    return f"takes one job file. To run a program: {run_command([str(file), *arguments])}"


def _effective_type(instance_type: str | None) -> str | None:
    """Returns the explicit instance type, or that of `--local`."""
    if not selected_backend().local:
        return instance_type
    if instance_type is not None and not backend_for_type(instance_type).is_local:
        raise typer.BadParameter(
            f"{instance_type!r} is an instance type of a service, but --local runs the job in Docker",
            param_hint="-t",
        )
    return instance_type or LOCAL.instance_types[0]


def job_file_of(options: Mapping[str, Any]) -> JobFile:
    """Returns the job file of a command, with the values that the options of the command override."""
    from pai_sdk._client.submit.job_file import JobFile
    from pai_sdk._client.submit.yaml_file import read_scalar

    described = JobFile.load(options["file"]) if options.get("file") else JobFile()
    described = described.with_values({}, kind=options.get("kind"))
    _print_similar(options.get("values"), described.values.get(described.hyperparameters_key) or ())
    values: dict[str, Any] = {}
    for option, (key, flag) in _KEYS.items():
        value = options.get(option)
        if option == "requirement":
            value = [*(value or ())] or None
        values[key or described.hyperparameters_key] = pairs(value, flag) if flag else value
    more = pairs(options.get("parameter"), "--parameter")
    scalars = {key: read_scalar(text) for key, text in more.items()}
    source = more.get("resume", "")
    if source and not isinstance(scalars["resume"], bool) and not re.search(r"[/\\~:]|^\.", source):
        scalars["resume"] = find_job(source).id
    return described.with_values({**values, **scalars})


def submit(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A request in JSON: what `run --save` wrote.")],
    dry_run: DryRun = False,
    wait: Wait = True,
    notify: Notify = None,
    as_json: Json = False,
) -> None:
    """Submit a saved plan, exactly as it is.

    Example: pai-sdk submit plan.json --no-wait
    """
    check_is_plan(plan_file)
    plan = with_targets(Plan.load(plan_file), notify)
    if dry_run:
        print_plan(plan)
    else:
        _submit(plan, None, wait=wait, as_json=as_json)


def clone(
    context: typer.Context,
    job_id: JobId,
    values: Set = None,
    env: Env = None,
    label: Label = None,
    inputs: Input = None,
    outputs: Output = None,
    image: Image = None,
    command: Command = None,
    job_name: JobName = None,
    instance_type: InstanceType = None,
    instance_count: InstanceCount = None,
    max_run_time: MaxRunTime = None,
    api: Api = None,
    notify: Notify = None,
    dry_run: DryRun = False,
    wait: Wait = True,
    as_json: Json = False,
) -> None:
    """Submit a job again, with changes: the same code and inputs, a name and output folders of its own.

    With --api, a training job becomes one of DLC, or a job of DLC a training job.

    Example: pai-sdk clone train129f212o89d --set lr=0.1 --instance-type ecs.g6.xlarge
    """
    from pai_sdk._client.submit.cloning import clone as plan_copy

    job = find_job(job_id)
    _print_similar(values, job.record.hyperparameter_values)
    plan = with_targets(plan_copy(job, **job_file_of(context.params).values), notify)
    if dry_run:
        print_plan(plan)
    else:
        _submit(plan, None, wait=wait, as_json=as_json)


def _submit(plan: Plan, instance_type: str | None, *, wait: bool, as_json: bool) -> None:
    """Submits a plan, and exits with the exit code of its job."""
    backend_info = backend_for_type(instance_type or plan.request.compute_resource.ecs_spec, plan.api)
    session = get_default_session(local=backend_info.is_local)
    try:
        job = session.submit(plan, instance_type=instance_type)
    except KeyboardInterrupt:
        name = plan.request.training_job_name
        option = backend_info.list_option or selected_backend().option
        command = f"pai-sdk ps --name {name} {option}".rstrip()
        raise KeyboardInterrupt(f"if the job was created, this shows it: {command}") from None
    print_warnings(plan)
    if not wait:
        if as_json:
            typer.echo(json_of(job.record))
        else:
            typer.echo(job.id)
            _print_submitted(job)
        return
    display = Silent() if as_json else choose_display(job=job)
    try:
        display.submitted(job.record)
        job.wait(show_logs=not as_json, display=display, on_interrupt=backend_info.capabilities.on_interrupt)
    except (JobFailed, JobStopped) as error:
        if not as_json:
            print_error(str(error))
    except KeyboardInterrupt:
        ignore_further_interrupts()
        if not job.record.status.is_terminal:  # a local job was stopped, and has usually ended
            if as_json:  # otherwise the display has already printed them
                print_next_commands(job)
            raise typer.Exit(exit_codes.NOT_FINISHED) from None
    if as_json:
        typer.echo(json_of(job.record))
    raise typer.Exit(exit_codes.of_status(job.record.status))


def _print_submitted(job: TrainingJob) -> None:
    """Prints the name of a new job, its page, and the commands to follow and stop it, in two lines of stderr."""
    TerminalDisplay(sys.stderr).submitted(job.record)
    commands = next_commands(job.record)
    typer.echo(f"  to follow or stop it: {commands[0]}, {commands[-1]}", err=True)


def _print_similar(values: Sequence[str] | None, existing: Iterable[str]) -> None:
    """Prints which new hyperparameters have almost the name of an existing one."""
    names = [*existing]
    for name in pairs(values, "--set"):
        if name not in names and (near := did_you_mean(nearest(name, names, cutoff=0.7))):
            print_error(f"warning: --set: the job has no hyperparameter {name!r} so far; {near}")


def _upload_and_save(plan: Plan, instance_type: str | None, path: Path) -> None:
    """Uploads the files of a plan, and saves its request."""
    if plan.uploads and backend_for_type(instance_type).capabilities.shares_files:
        problem = "a saved plan contains no files, and the files of a local job are not uploaded"
        raise InvalidInputError([Problem("--save", problem, "run it, or give an instance type of a service")])
    if plan.uploads:
        get_default_session().backend_for(instance_type, plan.api).upload(plan)
    typer.echo(f"saved to {plan.save(path)}; submit it with: pai-sdk submit {path}")
    if plan.notify:
        typer.echo("targets may be secret, and are not in it: give --notify to `pai-sdk submit`", err=True)
