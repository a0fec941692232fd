"""Creates jobs of DLC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.cloning import mount_of_code
from pai_sdk._service.services.dlc.conversion import mount, mount_problems, training_request, unrunnable_problems
from pai_sdk._service.services.dlc.problems import refuse_problems
from pai_sdk._service.services.dlc.templates import with_template
from pai_sdk._service.services.training_jobs import create_job
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.checks import job_problems
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.sources import DataSource
from pai_sdk._wire.pai.roles import Mount
from pai_sdk._wire.workspace.checks import default_mount_path
from pai_sdk.errors import InvalidInputError, Problem

_TEMPLATE = wire_names(template_id=None)


def create_dlc_job(
    context: ServiceContext,
    body: Mapping[str, Any],
    principal: Principal,
    in_transaction: Callable[[Session, str], None] = lambda session, job_id: None,
) -> str:
    """Creates a job of a user; returns its id. Raises WireError with all problems of the body."""
    full_body = with_template(context, principal, body)
    job = received(NewJob, full_body)
    # For a body with a template, the check allows missing fields; here those of the template are there.
    merged = _TEMPLATE if job.template_id else ()
    refuse_problems(job_problems({name: full_body[name] for name in full_body if name not in merged}))
    refuse_problems(unrunnable_problems(job))
    try:
        request = training_request(job, _mounts(context, job, principal))
    except InvalidInputError as error:
        refuse_problems(error.problems)
        raise
    job_id, _ = create_job(context, request.to_wire(), principal, in_transaction, dlc_job=job)
    return job_id


def _mounts(context: ServiceContext, job: NewJob, principal: Principal) -> list[Mount]:
    mounts = [
        _mount(f"DataSources[{index}]", source, context, principal)
        for index, source in enumerate(job.data_sources)
    ]
    if job.code_source is not None:
        context.records.require_visible(job.code_source.code_source_id or "", principal, "read")
        mounts.append(mount_of_code(context.records, job.code_source))
    return mounts


def _mount(where: str, source: DataSource, context: ServiceContext, principal: Principal) -> Mount:
    """Returns the mount of a data source: of a URI, or of a registered data set."""
    uri, options, access = source.uri, source.options, source.mount_access
    path = source.mount_path
    if uri is None:
        dataset = context.records.data_set(source.data_source_id or "", source.data_source_version, principal)
        uri, access = dataset.uri or "", access or dataset.mount_access
        path = path or default_mount_path(dataset.options)
        options = options or dataset.options
        refuse_problems(mount_problems(f"{where}.DataSourceId", uri))
        if path is None:
            what = "is missing, and the data set has no default"
            refuse_problems([Problem(f"{where}.MountPath", what, "such as /mnt/data")])
    return mount(path or "", uri, access, options)
