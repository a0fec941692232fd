"""Explains errors about variables and files that this job does not have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk._wire.pai.names import PACKAGE_CHANNEL, variable_name
from pai_sdk._wire.pai.record import ChannelUri

_MISSING = re.compile(r"KeyError: ['\"](PAI_(HPS|INPUT|OUTPUT)_\w+)['\"]")
_FILE = re.compile(
    r"FileNotFoundError: (?:\[Errno 2\] No such file or directory: ['\"](?P<path>[^'\"]+)['\"]|"
    r"(?P<other>\S+) not found)"
)
_KINDS = {
    "HPS": ("hyperparameter", "Estimator(hyperparameters={'lr': 0.1}) sets $PAI_HPS_LR"),
    "INPUT": ("input", "fit({'train': 'data/'}) sets $PAI_INPUT_TRAIN"),
    "OUTPUT": ("output", "fit(outputs={'figures': 'oss://bucket/figures/'}) sets $PAI_OUTPUT_FIGURES"),
}


class JobChannels(Protocol):
    """The hyperparameters, inputs and outputs of a job: a record, or a stored request."""

    @property
    def hyperparameter_values(self) -> Mapping[str, str | None]:
        """Returns each hyperparameter's value."""
        ...

    @property
    def input_channels(self) -> Sequence[ChannelUri]:
        """Returns the inputs."""
        ...

    @property
    def output_channels(self) -> Sequence[ChannelUri]:
        """Returns the outputs."""
        ...


def missing_variable_hint(cause: str, job: JobChannels) -> str | None:
    """Returns why a variable of a hyperparameter, an input or an output is missing; None for other errors."""
    match = _MISSING.match(cause)
    if match is None:
        return None
    variable, kind = match[1], match[2]
    title, example = _KINDS[kind]
    names = {
        "HPS": [*job.hyperparameter_values],
        "INPUT": [channel.name for channel in job.input_channels if channel.name],
        "OUTPUT": [channel.name for channel in job.output_channels if channel.name],
    }[kind]
    existing = [f"PAI_{kind}_{variable_name(name)}" for name in names]
    if not existing:
        return f"the job has no {title}s: {example}"
    hint = did_you_mean(nearest(variable, existing, cutoff=0.75)) or f"it has: {', '.join(existing[:8])}"
    return f"the job has no {title} for {variable}; {hint}"


def missing_file_hint(cause: str, job: JobChannels) -> str | None:
    """Returns which files a job has, for an error about another one; None for other errors, and for programs."""
    match = _FILE.match(cause)
    path = match and (match["path"] or match["other"])
    if not path or not re.search(r"/|\.\w+$", path):
        return None
    names = [channel.name for channel in job.input_channels if channel.name and channel.name != PACKAGE_CHANNEL]
    inputs = ", ".join(f"$PAI_INPUT_{variable_name(name)}" for name in names[:8])
    has = f"its inputs are {inputs}" if inputs else "it has no inputs: " + _KINDS["INPUT"][1]
    return f"a job finds its own files only; {has}"
