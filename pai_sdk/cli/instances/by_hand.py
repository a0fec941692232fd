"""Runs the command of a job here, with the variables and folders of a job, but without a service and Docker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pai_sdk._client.backend.specs import LOCAL
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.report.debugger_variables import HOOK_VARIABLE, has_debugger
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.storage.stores.local import path_of_file_uri
from pai_sdk._host.agent.distributed import Rendezvous, free_ports, rendezvous_variables
from pai_sdk._host.agent.sandbox import RESUMED_CHANNELS
from pai_sdk._host.execution.contract import environment, instances, job_type
from pai_sdk.cli.tables import print_warnings
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.backend.base import Plan
    from pai_sdk._client.submit.job_file import JobFile
    from pai_sdk._wire.pai.request import TrainingJobRequest

_GRACE_S = 10.0
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has the latter only
_FORWARDED = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in signal.Signals.__members__
]
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
FOLDER = "pai-here"  # in the current one; a folder in it for each run


def run_by_hand(described: JobFile) -> None:
    """Runs the command of a job file in its code folder, and exits with its exit code."""
    # The plan for Docker here: it checks everything and leaves files where they are. Docker is not needed for it.
    values = {"instance_type": LOCAL.instance_types[0]}
    if described.kind != "AlgorithmEstimator":
        values["image_uri"] = described.values.get("image_uri") or "unused"
    submitter, plan = described.with_values(values).plan()
    request = plan.request
    print_warnings(plan)
    if submitter.requirements:
        typer.echo("requirements are not installed here: the packages of this environment are used", err=True)
    job_id = request.training_job_name
    instance, *further = instances(job_id, request)
    if further:
        problem = Problem("instance_count", "several instances do not run here", "use the embedded service")
        raise InvalidInputError([problem])
    code, inputs = _code_folder(request), _inputs(request)
    outputs = _explicit_outputs(described, plan)
    root = Path(FOLDER).absolute() / job_id
    _prepare(root, request, code, inputs, outputs)
    if plan.resume is not None:
        plan.resume.copy_to_target(submitter.resolved_session())
        typer.echo(f"resume: {plan.resume}", err=True)
    files = {name: source.name for name, source in inputs.items() if source.is_file()}
    variables = {
        **environment(job_id, request, instance, input_files=files).at(str(root)),
        **rendezvous_variables(instance, Rendezvous.on_loopback(free_ports(2)), job_type=job_type(request)),
    }
    if has_debugger(variables):
        # Nothing leads to a rank without a job; Python's own debugger has this terminal.
        del variables[HOOK_VARIABLE]
    typer.echo(f"outputs: {root.relative_to(Path.cwd()) / 'output'}", err=True)
    command = request.algorithm_spec.command if request.algorithm_spec else []
    hyperparameters = {parameter.name: parameter.value for parameter in request.hyperparameters}
    with _recorded(root, instance.name, hyperparameters) as record_exit:
        exit_code = _exit_code_of(command, code or root / "usercode", {**os.environ, **variables})
        record_exit(exit_code)
    raise typer.Exit(exit_code)


def _exit_code_of(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> int:
    """Runs a command until it ends by itself; signals to this process are passed on to it."""
    if sys.platform == "win32":  # no process groups
        return subprocess.call(command, cwd=folder, env=variables)
    # A terminal sends Ctrl-C to the command too, which may read from it. Elsewhere the command has a process group
    # of its own, so that a signal to the group of this process, as `timeout` sends it, reaches it only once.
    is_foreground = sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    process = subprocess.Popen(command, cwd=folder, env=variables, start_new_session=not is_foreground)

    stopping: list[int] = []

    def forward(number: int, _: object) -> None:
        if is_foreground and number != signal.SIGTERM:
            return
        stopping.extend(_with_children(process.pid))
        with suppress(ProcessLookupError):
            if not is_foreground:
                os.killpg(process.pid, number)
            else:
                for pid in stopping:
                    os.kill(pid, number)

    # What is ignored stays so, for both: `nohup` ignores SIGHUP.
    handled = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, forward) for number in handled}
    try:
        exit_code = process.wait()
        _wait_for(stopping)  # the shell ends first, and the program may still save
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    # A process that a signal ended has a negative code; shells add 128.
    return exit_code if exit_code >= 0 else 128 - exit_code


def _with_children(pid: int) -> list[int]:
    """Returns a process and its children, where /proc shows them."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *map(int, children.read_text().split() if children.exists() else ())]


def _wait_for(pids: Sequence[int]) -> None:
    """Waits for signalled processes, and kills them after the grace period of a job."""
    deadline = time.monotonic() + _GRACE_S
    for pid in pids:
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.02)
            os.kill(pid, _KILL)


def _explicit_outputs(described: JobFile, plan: Plan) -> dict[str, Path]:
    """Returns the folders of outputs with a location on this machine; others stay in the folder of the run."""
    values = described.values
    explicit_names = {*(values.get("outputs") or {})} | {key.removesuffix("_path") for key in values}
    if plan.resume is not None:
        explicit_names |= RESUMED_CHANNELS
    folders = {}
    for channel in plan.request.output_channels:
        uri = channel.output_uri or ""
        if not explicit_names & {channel.name, "output"}:
            continue
        if uri.startswith("file:"):
            folders[channel.name] = path_of_file_uri(uri)
        else:
            typer.echo(f"the output {channel.name!r} stays here; nothing is sent to {uri}", err=True)
    return folders


@contextmanager
def _recorded(root: Path, instance: str, values: Mapping[str, str]) -> Iterator[Callable[[int], None]]:
    """Records hyperparameters and outcome of a run, which has no job that lists of runs could ask."""
    status = "Terminated"  # also after Ctrl-C

    def record_exit(code: int) -> None:
        nonlocal status
        status = "Succeed" if code == 0 else "Terminated" if code in _STOPPED else "Failed"

    with EventWriter(RunLayout(str(root / "output")).tensorboard, source=instance) as events:
        events.hparams(values)
        try:
            yield record_exit
        finally:
            events.end(status)


def _prepare(
    root: Path,
    request: TrainingJobRequest,
    code: Path | None,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
) -> None:
    """Creates the folders that a job sees at `/ml`, with links to code, inputs and explicit outputs."""
    for folder in (root / "input" / "data", root / "input" / "config", root / "output"):
        folder.mkdir(parents=True, exist_ok=True)
    (root.parent / ".gitignore").write_text("*\n")  # no part of the code of later jobs
    for channel in request.output_channels:
        folder, target = root / "output" / channel.name, outputs.get(channel.name)
        if target is not None:
            target.mkdir(parents=True, exist_ok=True)
            if folder.is_dir() and not folder.is_symlink():
                problem = f"an earlier run with this name has its files in {folder.relative_to(Path.cwd())}"
                raise InvalidInputError([Problem(f"outputs[{channel.name!r}]", problem, "give another --name")])
            _link(folder, target)
        elif folder.is_symlink() or not folder.exists():
            folder.unlink(missing_ok=True)  # a link of an earlier run with this name
            folder.mkdir()
    for name, source in inputs.items():
        target = root / "input" / "data" / name
        if source.is_file():
            target.mkdir(exist_ok=True)
            target /= source.name
        _link(target, source)
    values = {parameter.name: parameter.value for parameter in request.hyperparameters}
    (root / "input" / "config" / "hyperparameters.json").write_text(json.dumps(values, ensure_ascii=False))
    if code is None:
        (root / "usercode").mkdir(exist_ok=True)
    else:
        _link(root / "usercode", code)


def _code_folder(request: TrainingJobRequest) -> Path | None:
    """Returns the folder with the code; None for a job without code."""
    location = request.algorithm_spec.code_dir if request.algorithm_spec else None
    if location is None:
        return None
    if location.oss_uri is not None:
        raise InvalidInputError([Problem("source_dir", "is not on this machine", "give a local folder")])
    return Path(location.local_path)


def _inputs(request: TrainingJobRequest) -> dict[str, Path]:
    """Returns the file or folder of each input channel."""
    uris = {channel.name: channel.input_uri or "" for channel in request.input_channels}
    problems = [
        Problem(f"inputs[{name!r}]", "is not on this machine", "give a local file or folder")
        for name, uri in uris.items()
        if not uri.startswith("file:")
    ]
    if problems:
        raise InvalidInputError(problems)
    return {name: path_of_file_uri(uri) for name, uri in uris.items()}


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)  # of an earlier run with this name
    link.symlink_to(target)
