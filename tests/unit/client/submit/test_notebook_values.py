"""What notebooks hand over: numbers and arrays of libraries, odd paths, secrets within wrong values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Session
from pai_sdk.errors import SettingsError
from tests.support.messages import refused
from tests.unit.client.submit.test_parameter_types import made, problems


class Int64:
    """A whole number as numpy has them."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Array:
    """An array, which compares item by item and is neither true nor false."""

    def __eq__(self, other: object) -> Any:
        return Array()

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array with more than one element is ambiguous")


class PathInBytes:
    """A path as `os.scandir(b".")` gives it."""

    def __fspath__(self) -> bytes:
        return b"/data"


def test_a_whole_number_of_a_library_is_a_number() -> None:
    submitter = made(instance_count=Int64(2), max_run_time=Int64(60), priority=Int64(3))
    wire = submitter.plan().request.to_wire()
    assert wire["ComputeResource"]["EcsCount"] == 2
    assert wire["Scheduler"] == {"MaxRunningTimeInSeconds": 60}
    assert wire["Priority"] == 3


@pytest.mark.parametrize("name", ["instance_count", "max_run_time", "priority"])
def test_a_number_that_is_not_whole_is_reported_as_such(name: str) -> None:
    assert "expected an integer" in problems(made(**{name: 2.5}))[name]


@pytest.mark.parametrize("value", [5, "text", Array(), {1: "a", "b": "c"}, [Array()], None])
@pytest.mark.parametrize("name", ["environments", "git_config", "requirements", "hyperparameters", "image_uri"])
def test_a_wrong_description_can_be_looked_at(name: str, value: Any) -> None:
    assert repr(made(Estimator, **{name: value})).startswith("Estimator(")


def test_arrays_are_reported_where_none_is_wanted() -> None:
    names = ["source_dir", "requirements", "image_uri", "labels"]
    assert set(problems(made(Estimator, **{name: Array() for name in names}))) == set(names)


@pytest.mark.parametrize("path", ["~no-such-user/data", Path("~no-such-user/data"), PathInBytes()])
def test_a_path_of_no_such_user_is_reported_by_its_parameter(path: Any) -> None:
    assert set(problems(made(source_dir=path))) == {"source_dir"}
    assert set(problems(made(), {"data": path})) == {"inputs['data']"}


@pytest.mark.parametrize("path", ["~no-such-user/data", PathInBytes()])
def test_outputs_go_to_no_such_path(path: Any) -> None:
    assert set(problems(made(), {}, {"data": path})) == {"outputs['data']"}
    assert set(problems(made(output_path=path))) == {"output_path"}


def test_no_config_file_in_the_home_of_an_unknown_user() -> None:
    with refused(SettingsError):
        Session(config_path="~no-such-user/config.json")


def test_a_name_is_refused_once() -> None:
    assert list(problems(made(Estimator, hyperparameters={1: 2, "2x": 3}))) == [
        "hyperparameters[1]",
        "hyperparameters['2x']",
    ]


@pytest.mark.parametrize("flaw", ["\0", "\ud800"])
def test_a_text_that_cannot_be_sent_is_not_shown(flaw: str) -> None:
    reported = problems(made(environments={"TOKEN": f"hush{flaw}"}, description=f"a{flaw}b"))
    assert set(reported) == {"request: Environments.TOKEN", "request: TrainingJobDescription"}
    assert "hush" not in str(reported)


def test_a_requirement_that_is_none_does_not_show_its_password() -> None:
    given = ["--index-url https://user:hush@example.com/simple\n"]
    assert "hush" not in str(problems(made(requirements=given)))
    assert "hush" not in repr(made(requirements=given))


class _Private(Estimator):
    """A kind of job whose class has a name that no job may have."""


def test_a_class_of_any_name_names_its_jobs() -> None:
    assert made(_Private).plan().request.training_job_name.startswith("private-")


def test_generated_names_are_no_longer_than_given_ones() -> None:
    assert "base_job_name" in problems(made(base_job_name="x" * 100))
    assert len(made(base_job_name="x" * 75).plan().request.training_job_name) <= 100
