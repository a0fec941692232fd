"""Loads pipelines from Python files, for the command line; the job that runs such a file, for schedules."""

from __future__ import annotations

import runpy
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pai_sdk._client.pipeline import Pipeline
from pai_sdk._client.session import Session
from pai_sdk._client.submit.processor import Processor
from pai_sdk._core.names.hints import name_hint
from pai_sdk._core.paths import expanded
from pai_sdk._wire.pai.secret_values import Secret
from pai_sdk.errors import InvalidInputError, PaiError, Problem


def pipeline_of(argument: str) -> Pipeline:
    """Loads the pipeline of `FILE.py` or `FILE.py:NAME`; the file is executed, and must not run the pipeline."""
    file, name = file_and_name(argument)
    path = expanded(file)
    if not path.is_file():
        raise InvalidInputError([Problem(str(path), "is not a file", "give FILE.py, or FILE.py:NAME")])
    pipelines = {key: value for key, value in _names_of(path).items() if isinstance(value, Pipeline)}
    if name and name not in pipelines:
        raise InvalidInputError([Problem(str(path), f"has no pipeline {name!r}", name_hint(name, pipelines))])
    distinct = {id(value): key for key, value in pipelines.items()}
    if not name and len(distinct) != 1:
        problem = "has several pipelines" if pipelines else "has no pipeline"
        hint = (
            f"give {path.name}:NAME with one of: {', '.join(pipelines)}"
            if pipelines
            else "such as pipeline = Pipeline(…)"
        )
        raise InvalidInputError([Problem(str(path), problem, hint)])
    return pipelines[name or next(iter(pipelines))]


def file_and_name(argument: str) -> tuple[str, str]:
    """Splits `FILE.py:NAME`; the name is empty if there is none."""
    file, _, name = argument.rpartition(":") if ".py:" in argument else (argument, "", "")
    return file, name


def _names_of(path: Path) -> dict[str, Any]:
    """Executes a file with its folder on the path, as `python FILE` does, and returns its names."""
    sys.path.insert(0, str(path.resolve().parent))
    try:
        return runpy.run_path(str(path), run_name="pai_sdk_pipeline")
    except (PaiError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        last = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"{path}:{last[-1].lineno}" if last else str(path)
        raise InvalidInputError([Problem(where, f"{type(error).__name__}: {error}")]) from error


def parameters_of(assignments: Sequence[str]) -> dict[str, Any]:
    """Parses the parameters of `--set NAME=VALUE`."""
    wrong = [
        Problem(f"--set {text}", "has no value", "write NAME=VALUE") for text in assignments if "=" not in text
    ]
    if wrong:
        raise InvalidInputError(wrong)
    return {name: value for name, _, value in (text.partition("=") for text in assignments)}


_KEYS = ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET")


def pipeline_job(
    argument: str, parameters: Mapping[str, str], session: Session, *, image: str, instance_type: str
) -> Processor:
    """Creates the job that runs the pipeline of `FILE.py` or `FILE.py:NAME`, with its folder as the code."""
    file, name = file_and_name(argument)
    path = expanded(file).absolute()
    if path.parent == Path.home():  # all of it would be uploaded
        text = "is in your home folder, and the folder of the file is uploaded as the code of the job"
        raise InvalidInputError([Problem(str(file), text, "put it into a folder of its own")])
    settings = [word for key, value in parameters.items() for word in ("--set", f"{key}={value}")]
    command = ["pai-sdk", "pipeline", "run", f"{path.name}:{name}" if name else path.name, *settings]
    return Processor(
        image,
        shlex.join(command),
        source_dir=str(path.parent),
        instance_type=instance_type,
        environments=_service_variables(session),
        session=session,
    )


def _service_variables(session: Session) -> dict[str, str | Secret]:
    """Returns the environment variables with which the job reaches the service of a session."""
    settings = session.settings
    if session.is_embedded or settings.is_empty:
        return {}  # a job of the embedded service finds it without settings, as every program of its user
    variables = {
        "PAI_REGION_ID": settings.region_id,
        "PAI_WORKSPACE_ID": settings.workspace_id,
        "PAI_OSS_BUCKET_NAME": settings.oss_bucket_name,
        "PAI_OSS_ENDPOINT": settings.oss_endpoint,
        "PAI_ENDPOINT": settings.endpoint,
        "PAI_AIWORKSPACE_ENDPOINT": settings.aiworkspace_endpoint,
    }
    return {name: value for name, value in variables.items() if value} | {name: Secret(name) for name in _KEYS}
