"""Turns the plan of a training job into one of a DLC job: its job folder, and its body."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from pai_sdk._client.backend.base import Plan, Purpose, Upload
from pai_sdk._client.backend.dlc.job_folder import code_requirements, prefix_installs, write_job_folder
from pai_sdk._client.backend.dlc.mapping import Layout, Rendering, body_problems, moved_variables, notes_of
from pai_sdk._client.backend.dlc.options import DlcOptions
from pai_sdk._client.backend.dlc.refusals import request_problems
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import InvalidInputError

API = "dlc"


class MountTargets(Protocol):
    """What decides where the files of a job are."""

    @property
    def mount_endpoint(self) -> str | None:
        """Returns the endpoint in URIs of mounts."""
        ...

    def tree_uri(self, tree: FileTree, purpose: Purpose) -> str:
        """Returns the URI of the folder for these files."""
        ...


def dlc_plan(plan: Plan, options: DlcOptions, targets: MountTargets) -> Plan:
    """Returns the plan of a DLC job; reports at once all that such a job cannot have."""
    request = plan.request
    if problems := request_problems(request, options):
        raise InvalidInputError(problems)
    code = next((each for each in plan.uploads if each.uri.rstrip("/") == _code_uri(request)), None)
    code_tree = code.tree if code is not None else None
    installs = prefix_installs(request, code_tree)
    moved = moved_variables(request)
    file_names = _file_names(plan)
    tree, folder = write_job_folder(
        request,
        variables={name: value for name, value in (request.environments or {}).items() if name in moved},
        file_names=file_names,
        code=code_tree,
        installs=installs,
    )
    upload = Upload(tree, targets.tree_uri(tree, "input"), "the job folder")
    layout = Layout(
        targets.mount_endpoint,
        upload.uri,
        file_names,
        moved,
        code_has_requirements=code_requirements(code_tree) is not None,
        prefix_installs=installs,
    )
    rendering = Rendering(options, layout)
    if problems := body_problems(rendering(request)):
        raise InvalidInputError(problems)
    return replace(
        plan,
        uploads=(*plan.uploads, upload),
        keep=(plan.keep, folder),
        notes=(*plan.notes, *notes_of(request, layout)),
        api=API,
        render=rendering,
    )


def _code_uri(request: TrainingJobRequest) -> str:
    code = request.effective_code_dir
    return (code.oss_uri or "").rstrip("/") if code is not None else ""


def _file_names(plan: Plan) -> dict[str, str]:
    """Returns the inputs that are single files, with the names of these: their folders are mounted."""
    folders = {upload.uri for upload in plan.uploads}
    names = {}
    for channel in plan.request.input_channels:
        folder, _, name = (channel.input_uri or "/").rpartition("/")
        # As for code: a name with a suffix is that of a file.
        if name and (f"{folder}/" in folders or "." in name):
            names[channel.name] = name
    return names
