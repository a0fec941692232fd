"""Creates the tuner of `tune` from a job file, a file with ranges and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pai_sdk._client.submit.job_file import JobFile
from pai_sdk._client.submit.submitter import EstimatorBase
from pai_sdk._client.tune import Tuner
from pai_sdk._client.tune.search_file import KEYS, SearchFile
from pai_sdk.cli.options import pairs
from pai_sdk.errors import InvalidInputError, Problem


def described_search(
    file: Path, search: Path, values: list[str] | None, options: dict[str, Any]
) -> tuple[Tuner, dict[str, Any] | None]:
    """Returns the tuner, and the inputs of its jobs; the options override the file of the search."""
    job_file = JobFile.load(file)
    job_file = job_file.with_values({job_file.hyperparameters_key: pairs(values, "--set")})
    submitter, call = job_file.described()
    if not isinstance(submitter, EstimatorBase):
        raise InvalidInputError([Problem(str(file), "describes a Processor", "a search needs an Estimator")])
    if call.get("outputs"):
        hint = "leave it out: each job has a folder of its own"
        raise InvalidInputError([Problem(f"{file}: outputs", "would be written by all trials", hint)])
    searched = {name: value for name, value in options.items() if name in KEYS and name != "search"}
    arguments = SearchFile.load(search).with_values(searched).arguments()
    return Tuner(submitter, **arguments), call.get("inputs")
