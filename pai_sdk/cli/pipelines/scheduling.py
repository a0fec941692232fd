"""The job that runs a pipeline on a service, for schedules."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from pai_sdk._client.session import Session
from pai_sdk._client.submit.processor import Processor
from pai_sdk._core.paths import expanded
from pai_sdk._wire.pai.secret_values import Secret
from pai_sdk.cli.pipelines.files import file_and_name
from pai_sdk.errors import InvalidInputError, Problem

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
