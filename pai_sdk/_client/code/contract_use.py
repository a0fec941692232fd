"""Finds probable mistakes in how a command and its code use the job contract, before the job is sent.

Only what is almost certain is reported: a warning that is often wrong is not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pai_sdk._client.code.job_package import CHANNEL, program_contents
from pai_sdk._client.code.script_text import first_script
from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._wire.pai.hyperparameters import user_args
from pai_sdk._wire.pai.names import variable_name
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import HyperParameter

_TITLES = {"HPS": "hyperparameter", "INPUT": "input", "OUTPUT": "output"}
_NAME = re.compile(rb"\bPAI_(?:HPS|INPUT|OUTPUT)_[A-Z0-9_]+\b")
# `$NAME` and `${NAME}`; `${NAME:-default}` works without the variable.
_READ = re.compile(r"\$(?:\{(?P<braced>PAI_(?:HPS|INPUT|OUTPUT)_\w+)\}|(?P<plain>PAI_(?:HPS|INPUT|OUTPUT)_\w+))")
_USER_ARGS = re.compile(r"\$(?:PAI_USER_ARGS\b|\{PAI_USER_ARGS\})")
_NEAR = 0.75  # as in hints about a KeyError


def contract_warnings(
    request: TrainingJobRequest, command: Sequence[str], tree: FileTree | None, source_dir: object
) -> list[str]:
    """Returns the probable mistakes of a command and of the files in its code folder, `source_dir` for users."""
    script = command[-1] if command else ""
    variables = _variables(request)
    # The code of a job without parameters and inputs is not read.
    code = b"\n".join(program_contents(tree)) if variables["HPS"] or variables["INPUT"] else b""
    warnings = [*_unset_variables(script, variables), *_misspelt_names(code, variables)]
    if _USER_ARGS.search(script):
        warnings += _argument_warnings(request.hyperparameters, script, code)
    return [*warnings, *_lost_script(request, command, tree, source_dir)]


def _variables(request: TrainingJobRequest) -> dict[str, dict[str, str]]:
    """Returns the variables of the job by kind, each with the name that the user gave."""
    names = {
        "HPS": [parameter.name for parameter in request.hyperparameters],
        "INPUT": [channel.name for channel in request.input_channels if channel.name != CHANNEL],
        "OUTPUT": [channel.name for channel in request.output_channels],
    }
    return {
        kind: {f"PAI_{kind}_{variable_name(name)}": name for name in of_kind} for kind, of_kind in names.items()
    }


def _unset_variables(script: str, variables: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yields the variables that a command reads and its job does not have."""
    read = dict.fromkeys(match["braced"] or match["plain"] for match in _READ.finditer(script))
    for variable in read:
        kind = variable.split("_")[1]
        if variable in variables[kind] or f"{variable}=" in script:
            continue
        hint = did_you_mean(nearest(variable, variables[kind], cutoff=_NEAR))
        yield (
            f"the command reads ${variable}, which is empty: the job has no such {_TITLES[kind]}"
            f"{f' ({hint})' if hint else ''}"
        )


def _misspelt_names(text: bytes, variables: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yields variables that nothing reads, while the code reads one of a similar name, which the job lacks."""
    mentioned = {match.decode() for match in _NAME.findall(text)}
    for kind, names in variables.items():
        prefix = f"PAI_{kind}_"
        unset = [name.removeprefix(prefix) for name in sorted(mentioned - {*names}) if name.startswith(prefix)]
        for variable in sorted({*names} - mentioned):
            for read in nearest(variable.removeprefix(prefix), unset, cutoff=_NEAR):
                title = f"{_TITLES[kind]} {names[variable]!r}"
                yield f"the code reads {prefix}{read}, but the {title} sets {variable}; rename one of them"


def _argument_warnings(parameters: Sequence[HyperParameter], script: str, text: bytes) -> Iterator[str]:
    """Yields hyperparameters that a program does not understand in the form that `$PAI_USER_ARGS` has."""
    for parameter in parameters:
        where = f"hyperparameters[{parameter.name!r}]"
        if "eval" not in script and "'" in user_args([parameter], []):
            yield (
                f"{where}: $PAI_USER_ARGS has quotes around {parameter.value[:40]!r}, which become a part of the "
                f'argument; write: eval "set -- $PAI_USER_ARGS"; python train.py "$@"'
            )
        flag = re.escape(f"--{parameter.name}".encode())
        is_flag = re.search(rb"""["']%s["'][^()]*action\s*=\s*["']store_(?:true|false)["']""" % flag, text)
        if is_flag and parameter.value in ("true", "false"):
            yield (
                f"{where}: $PAI_USER_ARGS has `--{parameter.name} {parameter.value}`, but the code has an option "
                "without a value; write type=lambda text: text == 'true' in place of its action"
            )
        other = parameter.name.replace("_", "-") if "_" in parameter.name else parameter.name.replace("-", "_")
        quoted = rb"""["']--%s["']"""
        if re.search(quoted % re.escape(other.encode()), text) and not re.search(
            quoted % re.escape(parameter.name.encode()), text
        ):
            yield f"{where}: the code has an option --{other}; $PAI_USER_ARGS has --{parameter.name}; rename one"


def _lost_script(
    request: TrainingJobRequest, command: Sequence[str], tree: FileTree | None, source_dir: object
) -> Iterator[str]:
    """Yields the reason why a job does not find the script of its command."""
    script = first_script(command)
    if script is None:
        return
    has_code = request.algorithm_spec is not None and request.algorithm_spec.code_dir is not None
    if not has_code and not script.startswith("/"):
        folder = "the current folder, '.', has it" if Path(script).is_file() else "the folder that has it"
        yield f"the job has no code, so it does not find {script!r}; give source_dir: {folder}"
    if tree is not None and script.startswith("/") and isinstance(source_dir, (str, Path)):
        path = os.path.relpath(script, source_dir)
        if any(entry.path == path for entry in tree.entries):
            yield f"{script!r} is a path of this machine; write {path!r}, as in the code folder of the job"
