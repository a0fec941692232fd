"""Turns the plan of a training job into one of a DLC job: its job folder, and its body."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pai_sdk._client.backend.base import Plan, Purpose, Upload
from pai_sdk._client.backend.dlc.job_folder import REQUIREMENTS, CodeFiles, write_job_folder
from pai_sdk._client.backend.dlc.mapping import Layout, Rendering, body_problems, moved_variables, notes_of
from pai_sdk._client.backend.dlc.options import DlcOptions
from pai_sdk._client.backend.dlc.refusals import request_problems
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import InputChannel, OssLocation
from pai_sdk.errors import InvalidInputError

if TYPE_CHECKING:
    from pai_sdk._data.storage.store import Store

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

    def store(self, uri: str) -> Store:
        """Opens a folder of OSS."""
        ...


def dlc_plan(plan: Plan, options: DlcOptions, targets: MountTargets, *, code: CodeFiles | None = None) -> Plan:
    """Returns the plan of a DLC job; reports at once all that such a job cannot have.

    `code` describes code that is not uploaded with the plan.
    """
    request = plan.request
    if problems := request_problems(request, options):
        raise InvalidInputError(problems)
    code = code or _uploaded_code(plan)
    moved = moved_variables(request)
    file_names = file_names_of(request.input_channels, {upload.uri for upload in plan.uploads})
    more_files = code.files_for(request)
    tree, folder = write_job_folder(
        request,
        variables={name: value for name, value in (request.environments or {}).items() if name in moved},
        file_names=file_names,
        more_files=more_files,
    )
    upload = Upload(tree, targets.tree_uri(tree, "input"), "the job folder")
    layout = Layout(
        targets.mount_endpoint,
        upload.uri,
        file_names,
        moved,
        code_has_requirements=code.requirements is not None,
        prefix_installs=REQUIREMENTS in more_files,
    )
    rendering = Rendering(options, layout)
    if problems := body_problems(rendering(request), len(options.mounts)):
        raise InvalidInputError(problems)
    return replace(
        plan,
        uploads=(*plan.uploads, upload),
        keep=(plan.keep, folder),
        notes=(*plan.notes, *notes_of(request, layout)),
        api=API,
        render=rendering,
    )


def remote_code(request: TrainingJobRequest, targets: MountTargets) -> CodeFiles:
    """Returns what counts of code that is in OSS already."""
    code = request.effective_code_dir
    if code is None or not isinstance(code.location_value, OssLocation):
        return CodeFiles()
    location = code.location_value
    store = targets.store(f"oss://{location.bucket}/{location.key}")
    return CodeFiles.of(
        ((each.path, each.executable) for each in store.list()),
        lambda name: b"".join(store.read(name)).decode(errors="backslashreplace"),
    )


def _uploaded_code(plan: Plan) -> CodeFiles:
    code = next((each for each in plan.uploads if each.uri.rstrip("/") == _code_uri(plan.request)), None)
    if code is None:
        return CodeFiles()
    root = code.tree.root
    return CodeFiles.of(
        ((entry.path, entry.executable) for entry in code.tree.entries),
        lambda name: (root / name).read_text(encoding="utf-8", errors="backslashreplace"),
    )


def _code_uri(request: TrainingJobRequest) -> str:
    code = request.effective_code_dir
    return (code.oss_uri or "").rstrip("/") if code is not None else ""


def file_names_of(channels: Iterable[InputChannel], folders: Collection[str]) -> dict[str, str]:
    """Returns the inputs that are single files, with the names of these: their folders are mounted.

    `folders` are those that the plan uploads.
    """
    names = {}
    for channel in channels:
        folder, _, name = (channel.input_uri or "/").rpartition("/")
        # As for code: a name with a suffix is that of a file.
        if name and (f"{folder}/" in folders or "." in name):
            names[channel.name] = name
    return names
