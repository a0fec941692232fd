"""Runs the command of a job here, with the variables and folders of a job, but without a service and Docker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pai_sdk._client.backend.specs import LOCAL
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.storage.stores.local import path_of_file_uri
from pai_sdk._host.agent.distributed import Rendezvous, free_ports, rendezvous_variables
from pai_sdk._host.execution.contract import environment, instances, job_type
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.submit.job_file import JobFile
    from pai_sdk._wire.pai.request import TrainingJobRequest

_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
FOLDER = "pai-here"  # in the current one; a folder in it for each run


def run_by_hand(described: JobFile) -> None:
    """Runs the command of a job file in its code folder, and exits with its exit code."""
    # The plan for Docker here: it checks everything and leaves files where they are. Docker is not needed for it.
    submitter, plan = described.with_values({"instance_type": LOCAL.instance_types[0]}).plan()
    request = plan.request
    if submitter.requirements:
        typer.echo("requirements are not installed here: the packages of this environment are used", err=True)
    job_id = request.training_job_name
    instance, *further = instances(job_id, request)
    if further:
        problem = Problem("instance_count", "several instances do not run here", "use the embedded service")
        raise InvalidInputError([problem])
    code, inputs = _code_folder(request), _inputs(request)
    root = Path(FOLDER).absolute() / job_id
    _prepare(root, request, code, inputs)
    files = {name: source.name for name, source in inputs.items() if source.is_file()}
    variables = {
        **environment(job_id, request, instance, input_files=files).at(str(root)),
        **rendezvous_variables(instance, Rendezvous.on_loopback(free_ports(2)), job_type=job_type(request)),
    }
    typer.echo(f"outputs: {root.relative_to(Path.cwd()) / 'output'}", err=True)
    command = request.algorithm_spec.command if request.algorithm_spec else []
    hyperparameters = {parameter.name: parameter.value for parameter in request.hyperparameters}
    with _recorded(root, instance.name, hyperparameters) as record_exit:
        process = subprocess.run(
            command, cwd=code or root / "usercode", env={**os.environ, **variables}, check=False
        )
        # A process that a signal ended has a negative code; shells add 128.
        exit_code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        record_exit(exit_code)
    raise typer.Exit(exit_code)


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


def _prepare(root: Path, request: TrainingJobRequest, code: Path | None, inputs: Mapping[str, Path]) -> None:
    """Creates the folders that a job sees at `/ml`, with links to code and inputs."""
    for folder in (root / "input" / "data", root / "input" / "config", root / "output"):
        folder.mkdir(parents=True, exist_ok=True)
    (root.parent / ".gitignore").write_text("*\n")  # no part of the code of later jobs
    for channel in request.output_channels:
        (root / "output" / channel.name).mkdir(exist_ok=True)
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
