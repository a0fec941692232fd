"""A job in a YAML file: an Estimator, Processor or AlgorithmEstimator, its inputs and its outputs.

The keys are the parameters of these classes. `docs/job-file.schema.json` is made from the same table
(`submit.job_file_schema`), for editors.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk._client.submit.channels import DATASET
from pai_sdk._client.submit.estimator import Estimator
from pai_sdk._client.submit.processor import Processor
from pai_sdk._client.submit.submitter import JobSubmitter
from pai_sdk._client.submit.yaml_file import KeyPath, YamlFile, read_yaml
from pai_sdk._core.names.hints import did_you_mean, name_hint, nearest, wrong_type
from pai_sdk._core.names.peer_names import keyword_hint
from pai_sdk._core.paths import expanded
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.backend.base import Plan
    from pai_sdk._client.session import Session

KINDS: Mapping[str, type[JobSubmitter]] = {
    "Estimator": Estimator,
    "Processor": Processor,
    "AlgorithmEstimator": AlgorithmEstimator,
}
"""The classes that a file can describe, by the value of its key `kind`."""

CALL = ("inputs", "outputs", "job_name")
"""Keys for `plan()`; all others but `kind` are parameters of the class."""

CHANNELS = ("input_channels", "output_channels")
"""Keys of a Processor for the channels that it defines."""

_EXCLUDED = frozenset({"session", "jobs", "notify"})
_MERGED = frozenset({"hyperparameters", "parameters", "environments", "labels", "inputs", "outputs"})
_STRING_MAPPINGS = frozenset({"environments", "labels"})  # `DEBUG: 1` is the text 1
_STAND_IN = "-"


def parameters_of(kind: type[JobSubmitter]) -> list[str]:
    """Returns the keys that a file of this kind can have, beside `kind`."""
    init_fields = [
        f.name for f in fields(kind) if f.init and not f.name.startswith("_") and f.name not in _EXCLUDED
    ]
    return [*init_fields, *CALL, *(CHANNELS if kind is Processor else ())]


@short_tracebacks
@dataclass(frozen=True)
class JobFile:
    """A job as a file describes it, or as the options of a command do.

    Attributes:
        values: parameter to value; the key `kind` is taken out.
        kind: the name of the class.
        file: where values come from; None without a file.
        overridden: the keys whose values come from elsewhere.

    Example:
        >>> job = JobFile({"image_uri": "python:3.11", "command": "python train.py"})
        >>> job.with_values({"hyperparameters": {"lr": "0.1"}}).values["hyperparameters"]
        {'lr': '0.1'}
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "Estimator"
    file: YamlFile | None = None
    overridden: frozenset[KeyPath] = frozenset()

    @classmethod
    def load(cls, path: str | Path) -> JobFile:
        """Read a YAML file. What is in it is checked by `plan`, with all else that is wrong.

        Raises:
            InvalidInputError: it cannot be read, is not YAML, or not a mapping.
        """
        file = read_yaml(expanded(path))
        if not isinstance(file.value, dict):
            message = "is empty" if file.value is None else "is not a mapping of keys to values"
            raise InvalidInputError([Problem(f"{file.path}:1", message, "such as `image_uri: python:3.11`")])
        values = {str(key): value for key, value in file.value.items()}
        return cls(values, str(values.pop("kind", "Estimator")), file)

    @property
    def hyperparameters_key(self) -> str:
        """The key of the hyperparameters in this kind of file."""
        return "parameters" if self.kind == "Processor" else "hyperparameters"

    def with_values(self, values: Mapping[str, Any], *, kind: str | None = None) -> JobFile:
        """Return a copy with other values: mappings such as `labels` are merged, all others replaced.

        Args:
            values: parameter to value; those that are None and empty mappings change nothing.
            kind: another kind of job.
        """
        merged, overridden = dict(self.values), set(self.overridden)
        for name, value in values.items():
            if value is None or value == {}:
                continue
            before = merged.get(name)
            if name in _MERGED and isinstance(before, Mapping) and isinstance(value, Mapping):
                merged[name] = {**before, **value}
                overridden |= {(name, key) for key in value}
            else:
                merged[name] = value
                overridden.add((name,))
        return replace(self, values=merged, kind=kind or self.kind, overridden=frozenset(overridden))

    def plan(self, session: Session | None = None) -> tuple[JobSubmitter, Plan]:
        """The submitter, and the plan of the job; nothing is sent.

        Args:
            session: where the job goes; the default session otherwise.

        Raises:
            InvalidInputError: with all problems, each with the line of the file.
            SettingsError: as `JobSubmitter.plan`.

        Example:
            >>> submitter, plan = JobFile.load("job.yaml").plan()  # doctest: +SKIP
            >>> job = submitter.submit(plan)  # doctest: +SKIP
        """
        submitter, call, problems = self._create(session)
        try:
            plan = submitter.plan(**call)
        except InvalidInputError as error:
            problems += map(self._located, error.problems)
        if problems:
            raise InvalidInputError(sorted(problems, key=_line))
        return submitter, plan

    def described(self, session: Session | None = None) -> tuple[JobSubmitter, dict[str, Any]]:
        """The submitter, and the inputs and outputs of its jobs, for many jobs like this one.

        Raises:
            InvalidInputError: as `plan`.
        """
        self.plan(session)
        submitter, call, _ = self._create(session)
        return submitter, call

    def _create(self, session: Session | None) -> tuple[JobSubmitter, dict[str, Any], list[Problem]]:
        """Returns the submitter, the arguments of its `plan`, and the problems so far."""
        problems = list(self.file.problems) if self.file else []
        kind = KINDS.get(self.kind)
        if kind is None:
            problems.append(
                self._located(Problem("kind", f"unknown value {self.kind!r}", name_hint(self.kind, KINDS)))
            )
            kind = Estimator
        names = parameters_of(kind)
        problems += [self._located(_unknown(name, names)) for name in self.values if name not in names]
        values = self._prepared({name: value for name, value in self.values.items() if name in names})
        for needed in fields(kind):
            if needed.default is MISSING and needed.default_factory is MISSING and values.get(needed.name) is None:
                if not _is_misspelt(needed.name, self.values, names):
                    problems.append(self._located(Problem(needed.name, "is required")))
                values[needed.name] = _STAND_IN
        call = {name: values.pop(name) for name in CALL if name in values}
        channels = {name: values.pop(name) for name in CHANNELS if name in values}
        submitter = kind(**values, session=session)
        if isinstance(submitter, Processor):
            problems += map(self._located, _define(submitter, channels))
        return submitter, call, problems

    def _prepared(self, values: dict[str, Any]) -> dict[str, Any]:
        """Converts the values for the classes: paths are relative to the file, scalars become strings."""
        if self.file is None:
            return values
        for name in _STRING_MAPPINGS & values.keys():
            if isinstance(values[name], dict):
                values[name] = {
                    str(key): self._text((name, str(key)), value) for key, value in values[name].items()
                }
        if "git_config" not in values and isinstance(values.get("source_dir"), str):
            values["source_dir"] = self._path(("source_dir",), values["source_dir"])
        if isinstance(values.get("inputs"), dict):
            values["inputs"] = {
                key: self._path(("inputs", key), source) if isinstance(source, str) else source
                for key, source in values["inputs"].items()
            }
        return values

    def _text(self, key_path: KeyPath, value: Any) -> Any:
        is_scalar = isinstance(value, str | int | float | bool)
        if self.file is None or not is_scalar or key_path in self.overridden or key_path[:1] in self.overridden:
            return value
        return self.file.scalars.get(key_path, value)

    def _path(self, key_path: KeyPath, text: str) -> str:
        """Returns a local path of the file, relative to the folder of the file."""
        is_overridden = key_path in self.overridden or key_path[:1] in self.overridden
        if (
            self.file is None
            or is_overridden
            or not text
            or uri_scheme(text) is not None
            or DATASET.fullmatch(text)
        ):
            return text
        return str(self.file.path.parent / expanded(text))

    def _located(self, problem: Problem) -> Problem:
        """Returns the problem with the line of the file to which it refers."""
        key = problem.where.partition("[")[0].partition(".")[0].partition(":")[0]
        if self.file is None or (key,) in self.overridden:
            return problem
        return replace(problem, where=self.file.where(problem.where))


def _line(problem: Problem) -> int:
    """Returns the line of a problem; those without a line are last."""
    match = re.search(r":(\d+): ", problem.where)
    return int(match[1]) if match else sys.maxsize


def _unknown(name: str, names: list[str]) -> Problem:
    if hint := keyword_hint(name, names):
        return Problem(name, "is unknown", hint)
    # What is near in meaning and not in letters.
    meant = {"parameters": "hyperparameters", "hyperparameters": "parameters", "image": "image_uri"}.get(name)
    near = did_you_mean([meant] if meant in names else nearest(name, names))
    # A list of all 40 keys would hide the other problems of the file.
    return Problem(name, "is unknown", near or "all keys with their meaning: pai-sdk run --schema")


def _is_misspelt(name: str, values: Mapping[str, Any], names: list[str]) -> bool:
    """Returns whether a missing parameter has a similar key: that is one mistake, not two."""
    hints = (_unknown(other, names).hint for other in values if other not in names)
    return any(hint == f"did you mean {name!r}?" or hint.startswith(f"{name}=") for hint in hints)


def _define(processor: Processor, channels: Mapping[str, Any]) -> list[Problem]:
    """Defines the channels of a processor; returns the problems with them."""
    problems: list[Problem] = []
    for name, definitions in channels.items():
        if not isinstance(definitions, list):
            problems.append(wrong_type(name, definitions, "a list", "such as [data]"))
            continue
        # A name alone is a channel, too.
        channel_list: list[Any] = [{"name": each} if isinstance(each, str) else each for each in definitions]
        try:
            (processor.set_input_channels if name == "input_channels" else processor.set_output_channels)(
                channel_list
            )
        except InvalidInputError as error:
            problems += error.problems
    return problems
