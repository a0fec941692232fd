"""`pai-sdk cp` from and to running jobs."""

from __future__ import annotations

import typer

from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._client.tunnel.copying import check_remote_path
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._data.storage.tree import size_text
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk.cli.enter.instances import find_instance, names_relative_path, split_remote
from pai_sdk.errors import InvalidInputError, Problem

_EXAMPLE = "such as train129f212o89d:/ml/output/model"


def copy_remote(source: str, target: str, *, dry_run: bool) -> bool:
    """Copies if one of the sides is JOB[:RANK]:/path; returns False if none is."""
    from_job, to_job = split_remote(source), split_remote(target)
    if from_job is None and to_job is None:
        for text, is_source in ((source, True), (target, False)):
            if uri_scheme(text) is None and names_relative_path(text, is_source=is_source):
                raise InvalidInputError(
                    [Problem("cp", f"{text} is no file, and paths in jobs are absolute", _EXAMPLE)]
                )
        return False
    local = target if from_job is not None else source
    if (from_job is not None and to_job is not None) or uri_scheme(local) is not None:
        hint = "copy to a local path first, and from there in a second step"
        raise InvalidInputError([Problem("cp", "copies between a job and this machine only", hint)])
    job_name, path = from_job or to_job or ("", "")
    check_remote_path(path)
    job, instance = find_instance(job_name)
    if dry_run:
        typer.echo(f"would copy {source} to {target}")
        return True
    entered = EnteredJob(job.backend, job.refresh())
    if from_job is not None:
        copied = entered.copy_from(path, target, instance)
        where = copied.target
    else:
        copied = entered.copy_to(source, path, instance)
        where = f"{job_name}:{copied.target}"
    count = f"{copied.files:,} file{'' if copied.files == 1 else 's'}"
    typer.echo(visible_text(f"copied {source} ({count}, {size_text(copied.size_bytes)}) to {where}"))
    return True
