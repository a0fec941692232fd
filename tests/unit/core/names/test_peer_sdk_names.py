"""What users of SageMaker, Azure ML and Vertex AI type first: each name works, or its error says what to use.

`peer_sdk_names.json` has the names; `collect_peer_names.py` makes it of the packages.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Processor, Session, TrainingJob, Tuner
from pai_sdk._core.names.peer_attributes import attribute_hint
from pai_sdk._core.names.peer_modules import MODULES
from pai_sdk._core.names.peer_names import KEYWORDS, keyword_hint
from pai_sdk.alipai.member_aliases import ALIASES, REPLACEMENTS
from pai_sdk.errors import NotOfferedError, WrongCallError

pytestmark = pytest.mark.interpreter

_SDKS: dict[str, Any] = json.loads(Path(__file__).with_name("peer_sdk_names.json").read_text(encoding="utf-8"))
# Members that stand in for missing ones, and replacements of alipai's names.
ALIASED = {name for cls in ALIASES.values() for name in vars(cls)} | {
    name for each in REPLACEMENTS.values() for name in each
}
_ESTIMATOR, _PROCESSOR = Estimator("img", "true"), Processor("img", "true")
_TUNER = Tuner(_ESTIMATOR, {"lr": [0.1]})
_CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Estimator": (Estimator, ("img", "true")),
    "Processor": (Processor, ("img", "true")),
    "Session": (Session, ()),
    "Tuner": (Tuner, (_ESTIMATOR, {"lr": [0.1]})),
    "Tuner.run": (_TUNER.run, ()),
    "fit": (_ESTIMATOR.fit, ()),
    "run": (_PROCESSOR.run, ()),
}


def test_the_names_are_complete() -> None:
    assert _SDKS["keywords"].keys() == _CALLS.keys()
    assert sum(map(len, _SDKS["keywords"].values())) > 300
    assert sum(map(len, _SDKS["names"].values())) > 350
    assert len(_SDKS["modules"]) > 90


def _unanswered(call: Callable[..., Any], needed: tuple[Any, ...], names: list[str]) -> Iterator[str]:
    parameters = [*inspect.signature(call).parameters]
    for name in names:
        is_accepted = name in KEYWORDS and KEYWORDS[name].convert and keyword_hint(name, parameters)
        if name in parameters or is_accepted:
            continue
        with pytest.raises(WrongCallError) as caught:
            call(*needed, **{name: object()})
        (problem,) = [each for each in caught.value.problems if each.where == name]
        marks = ("is a parameter of ", "it is of the session", "it is of each job")
        if name not in KEYWORDS and not any(mark in str(problem) for mark in marks):
            yield name
        assert name not in KEYWORDS or problem.hint or marks[0] in problem.what


@pytest.mark.parametrize("call", _CALLS)
def test_a_keyword_is_accepted_or_answered(call: str) -> None:
    assert [*_unanswered(*_CALLS[call], _SDKS["keywords"][call])] == []


def test_the_check_sees_what_is_neither() -> None:
    assert [*_unanswered(Estimator, ("img", "true"), ["entry_point", "colour", "checkpoint_pat"])] == [
        "colour",
        "checkpoint_pat",
    ]


@pytest.mark.parametrize("kind", [Estimator, Processor, TrainingJob], ids=lambda kind: kind.__name__)
def test_an_attribute_exists_or_is_answered(kind: type) -> None:
    names = _SDKS["attributes"][kind.__name__]
    fields = getattr(kind, "__dataclass_fields__", {})
    missing = [name for name in names if name not in fields and not hasattr(kind, name)]
    assert len(missing) > 10
    assert [name for name in missing if name not in ALIASED and not attribute_hint(kind, name)] == []


def _answer(statement: str) -> str:
    """Returns the error of an import; empty if it works."""
    try:
        exec(statement, {})  # the statement, which would hide an AttributeError
    except (NotOfferedError, ImportError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("module", _SDKS["names"])
def test_a_name_can_be_imported_or_is_answered(module: str) -> None:
    paths = {"pai_sdk", f"pai_sdk.{module}".rstrip(".")}
    imports = [(name, f"from {path} import {name}") for path in paths for name in _SDKS["names"][module]]
    marks = ("use instead: ", " is not part of pai_sdk: ")
    plain = {
        statement: answer
        for name, statement in imports
        if (answer := _answer(statement)) and not any(mark in answer for mark in marks)
        # of ours, and in another module
        if not re.search(rf": from pai_sdk\.\w+ import {name}$", answer)
    }
    assert plain == {}


@pytest.mark.parametrize("module", [*_SDKS["modules"], *MODULES])
def test_a_module_can_be_imported_or_is_answered(module: str) -> None:
    answer = _answer(f"import pai_sdk.{module}")
    assert not answer or answer.endswith(f"use instead: {MODULES[module]}")


@pytest.mark.parametrize(
    ("path", "name", "home"),
    [
        ("pai_sdk.jobs", "Tuner", "pai_sdk"),
        ("pai_sdk", "EstimatorBase", "pai_sdk.estimator"),
        ("pai_sdk.estimator", "LogUniform", "pai_sdk"),
    ],
)
def test_a_name_of_another_door_says_where_it_is(path: str, name: str, home: str) -> None:
    with pytest.raises(ImportError, match=rf"^{name} is not in {path}: from {home} import {name}$"):
        exec(f"from {path} import {name}", {})
    assert _answer(f"from {home} import {name}") == ""
    assert not hasattr(import_module(path), f"{name}s")
