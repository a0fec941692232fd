"""The job folder of a DLC job: what its prefix reads. Uploaded by its content hash, and mounted at `/ml/job`.

env.sh                        variables of the contract, and those that the request has no room for
config/hyperparameters.json   as in the job contract
config/training-job.json      the request, without secrets
executables                   files of the code to be made executable: a mounted bucket keeps no modes
requirements.txt, install.py  where the prefix installs the requirements, see `prefix_installs`
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pai_sdk._data.storage.tree import FileTree
from pai_sdk._host.agent.requirement_lists import PIP_INSTALL_SCRIPT, has_files
from pai_sdk._wire.masking import public_request
from pai_sdk._wire.pai.hyperparameters import user_args
from pai_sdk._wire.pai.names import variable_name
from pai_sdk._wire.pai.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.errors import InvalidInputError, Problem

ML = "/ml"
VARIABLES, HYPERPARAMETERS = "env.sh", "config/hyperparameters.json"
EXECUTABLES, REQUIREMENTS = CODE_FILES = ("executables", "requirements.txt")
# Names of variables of the contract, and their beginnings.
_OF_CONTRACT = frozenset(("PAI_SDK_MOUNTS", "PAI_SDK_OUTPUTS", "PAI_HPS", "PAI_USER_ARGS"))
_BEGINNINGS = ("PAI_HPS_", "PAI_INPUT_", "PAI_OUTPUT_")


class TemporaryFolder:
    """A folder that is removed with this object. Copies of a plan share it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="pai-sdk-dlc-job-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, True)  # True: errors are ignored

    def __deepcopy__(self, memo: dict[int, Any]) -> TemporaryFolder:
        return self


def write_job_folder(
    request: TrainingJobRequest,
    *,
    variables: Mapping[str, str],
    file_names: Mapping[str, str],
    more_files: Mapping[str, str],
) -> tuple[FileTree, TemporaryFolder]:
    """Writes the files of the folder; returns them with the folder, which must live until they are uploaded.

    `variables` are those of the user that are not in the request; `file_names` are inputs that are files;
    `more_files` are those of `CODE_FILES`, by name.
    """
    folder = TemporaryFolder()
    files = {
        **more_files,
        VARIABLES: _exports({**variables, **_contract(request, file_names)}),
        HYPERPARAMETERS: _json({each.name: each.value for each in request.hyperparameters}),
        "config/training-job.json": _json(public_request(_without_submission(request))),
    }
    if REQUIREMENTS in more_files:
        files["install.py"] = PIP_INSTALL_SCRIPT
    for name, content in files.items():
        path = folder.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode())
    return FileTree.scan(folder.path), folder


@dataclass(frozen=True)
class CodeFiles:
    """What the job folder has about the code, since a mounted bucket keeps no modes."""

    executables: Sequence[str] = ()
    requirements: str | None = None  # the text of its requirements.txt

    @classmethod
    def of(cls, files: Iterable[tuple[str, bool]], read: Callable[[str], str]) -> CodeFiles:
        """Reads files by their paths, with True for executable ones; `read` returns the text of one."""
        modes = dict(files)
        executables = [path for path, executable in modes.items() if executable]
        return cls(executables, read(REQUIREMENTS) if REQUIREMENTS in modes else None)

    def files_for(self, request: TrainingJobRequest) -> dict[str, str]:
        """Returns the files of the job folder by their names."""
        files = {}
        if self.executables:
            files[EXECUTABLES] = "".join(f"{name}\n" for name in self.executables)
        if prefix_installs(request, self.requirements):
            files[REQUIREMENTS] = "".join(f"{line}\n" for line in request.python_requirements or ())
        return files


def prefix_installs(request: TrainingJobRequest, code_lines: str | None) -> bool:
    """Returns whether the prefix installs the requirements: DLC does not promise to install both lists of a job.

    It does not say either in which folder pip runs, so that it would not find the files that a list names.
    """
    lines = request.python_requirements or []
    return bool(lines and code_lines is not None) or has_files([*lines, code_lines or ""])


@dataclass(frozen=True)
class JobFolder:
    """The content of the folder of an earlier job; without it, that of a job which has none."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)  # of the user
    hyperparameters: Mapping[str, str] = field(default_factory=dict, repr=False)
    file_names: Mapping[str, str] = field(default_factory=dict)
    code_files: Mapping[str, str] = field(default_factory=dict)


def read_job_folder(read: Callable[[str], bytes | None]) -> JobFolder:
    """Returns the content of a job folder; `read` returns a file of it, None where there is none."""
    texts = {name: read(name) for name in (VARIABLES, HYPERPARAMETERS, *CODE_FILES)}
    tokens = shlex.split((texts[VARIABLES] or b"").decode())
    variables = dict(token.split("=", 1) for token in tokens if "=" in token)
    file_names = {}
    for path in (value for name, value in variables.items() if name.startswith("PAI_INPUT_")):
        channel, _, file = path.removeprefix(f"{ML}/input/data/").partition("/")
        if file:
            file_names[channel] = file
    return JobFolder(
        {
            name: value
            for name, value in variables.items()
            if name not in _OF_CONTRACT and not name.startswith(_BEGINNINGS)
        },
        json.loads(texts[HYPERPARAMETERS] or b"{}"),
        file_names,
        {name: text.decode() for name in CODE_FILES if (text := texts[name]) is not None},
    )


def _contract(request: TrainingJobRequest, file_names: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of the contract that are the same in every instance, and those for the prefix."""
    problems: list[Problem] = []
    values = {each.name: each.value for each in request.hyperparameters}
    inputs = {each.name: f"{ML}/input/data/{each.name}" for each in request.input_channels}
    outputs = {each.name: f"{ML}/output/{each.name}" for each in request.output_channels}
    mounts = [*([f"{ML}/code"] if request.effective_code_dir else []), *inputs.values(), *outputs.values()]
    variables = {
        "PAI_SDK_MOUNTS": " ".join(mounts),
        "PAI_SDK_OUTPUTS": " ".join(outputs.values()),
        "PAI_HPS": json.dumps(values, ensure_ascii=False),
        "PAI_USER_ARGS": user_args(request.hyperparameters, problems),
    }
    variables |= {f"PAI_HPS_{variable_name(name)}": value for name, value in values.items()}
    for name, path in inputs.items():
        file = file_names.get(name)
        variables[f"PAI_INPUT_{variable_name(name)}"] = f"{path}/{file}" if file else path
    variables |= {f"PAI_OUTPUT_{variable_name(name)}": path for name, path in outputs.items()}
    if problems:
        raise InvalidInputError(problems)
    return variables


def _exports(variables: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _without_submission(request: TrainingJobRequest) -> TrainingJobRequest:
    """Leaves out what differs between two submissions of the same job, so that they have one folder."""
    labels = [each for each in request.labels if each.key not in (SUBMISSION_LABEL, IDEMPOTENCY_LABEL)]
    return request.model_copy(update={"labels": labels})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
