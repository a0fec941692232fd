"""Finds the checkpoint that a job resumes from, when the job is planned. Nothing is copied here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk.errors import CheckpointError, InvalidInputError, MissingExtraError, NotFoundError, Problem
from pai_sdk.schemas.spec import OutputChannel
from pai_sdk.storage.uri import uri_scheme
from pai_sdk.submit.parameters import Description
from pai_sdk.submit.problems import Problems

if TYPE_CHECKING:
    from pai_sdk.run.resume import ResumePoint
    from pai_sdk.session import Session

_CHANNEL = "checkpoints"


def resume_point(
    description: Description,
    outputs: Mapping[str, Any] | None,
    channels: Sequence[OutputChannel],
    session: Session,
    problems: Problems,
) -> ResumePoint | None:
    """What the job resumes from; None when nothing was asked for, or what was asked for is wrong and noted.

    Args:
        description: has the parameter `resume`.
        outputs: as the user gave them.
        channels: the resolved output channels.
        session: finds jobs, and has the keys of `oss://`.
        problems: collects what is wrong. Nothing is looked for when something else is wrong already.
    """
    resume = description.resume
    if resume is None or resume is False:
        return None
    target = next((channel for channel in channels if channel.name == _CHANNEL), None)
    is_given = _CHANNEL in description.placed_outputs or _CHANNEL in (outputs or {})
    if resume is True and not is_given:
        problems.add(
            "resume",
            "True needs the place of the earlier checkpoints",
            "give checkpoints_path='oss://…', or resume='<id of the earlier job>' or '<URI of checkpoints>'",
        )
    if target is not None and not target.output_uri:
        problems.add("resume", "cannot look into a dataset", "give checkpoints_path='oss://…'")
    if problems.found or target is None:
        return None
    with problems.under("resume"):
        return _found(resume, target.output_uri or "", session)
    return None


def _found(resume: bool | str | os.PathLike[str], target: str, session: Session) -> ResumePoint:
    from pai_sdk.run.resume import find_resume_point

    source = target if resume is True else _source(resume, session)
    try:
        return find_resume_point(source, target, session, required=resume is not True)
    except CheckpointError as error:
        hint = (
            "look at the earlier job's outputs; resume=True with checkpoints_path starts from scratch without one"
        )
        raise InvalidInputError([Problem("", str(error), hint)]) from error
    except (InvalidInputError, MissingExtraError) as error:
        hint = "checkpoints can be resumed from and copied to oss://, file:// and file systems that fsspec knows"
        raise InvalidInputError([Problem("", f"{source} or {target} cannot be read: {error}", hint)]) from error


def _source(resume: bool | str | os.PathLike[str], session: Session) -> str:
    """The URI or path of the checkpoints to resume from."""
    if isinstance(resume, os.PathLike):
        return str(Path(resume).expanduser())
    text = str(resume)
    if uri_scheme(text) is not None or text.startswith("file:"):
        return text
    if "/" in text or text.startswith((".", "~")):
        return str(Path(text).expanduser())
    try:
        job = session.get_job(text)
    except NotFoundError as error:
        hint = "give the id of a job, or the URI of checkpoints; a folder is written as './name'"
        raise InvalidInputError([Problem("", str(error), hint)]) from error
    if _CHANNEL not in job.outputs:
        hint = f"it has: {', '.join(job.outputs) or 'none'}"
        raise InvalidInputError([Problem("", f"job {text} has no output {_CHANNEL!r}", hint)])
    return job.outputs[_CHANNEL]
