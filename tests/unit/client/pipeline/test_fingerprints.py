"""What of a function counts for the cache of a pipeline: its code, and the values that it takes from elsewhere."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import linecache
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pai_sdk._client.pipeline import Pipeline
from pai_sdk._client.pipeline.contents import CODE, content_of, sources_of
from pai_sdk._client.pipeline.fingerprints import changes
from pai_sdk._data.pipelines.records import StepRecord

SETTINGS = {"rate": 1}
SIZES = [1]


class Scale:
    """Its instances are called, and so is its method."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self) -> int:
        return self.factor

    def method(self) -> int:
        return self.factor


class Short:
    """Its `repr` says less than it has, like that of a large array."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<Short>"


def from_around(value: Any) -> Callable[[], int]:
    def call() -> int:
        return int(value.value)

    return call


def from_default(value: Any) -> Callable[[], int]:
    def call(value: Any = value) -> int:
        return int(value.value)

    return call


SHORT = Short(1)


def from_short() -> int:
    return SHORT.value


def give(value: Any = 0) -> Any:
    return value


def from_settings() -> int:
    return SETTINGS["rate"]


def from_sizes() -> int:
    return SIZES[0]


def run(tmp_path: Path, function: Callable[..., Any], **arguments: Any) -> StepRecord:
    pipeline = Pipeline("test", store=tmp_path / "store")
    pipeline.step(function, name="one", arguments=arguments)
    return pipeline.run(show=False)["one"]


def typed_in(source: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"__name__": "user"}
    exec(source, names)
    return names["step"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (functools.partial(give, value=1), functools.partial(give, value=2)),
        (functools.partial(give, 1), functools.partial(give, 2)),
        (Scale(1), Scale(2)),
        (Scale(1).method, Scale(2).method),
        (from_around(Short(1)), from_around(Short(2))),
        (from_default(Short(1)), from_default(Short(2))),
        (typed_in("def step():\n return int(1.0)"), typed_in("def step():\n return round(1.7)")),
    ],
    ids=["keywords", "positions", "object", "method", "closure", "default", "names"],
)
def test_a_function_with_other_values_is_called_again(
    tmp_path: Path, before: Callable[[], Any], after: Callable[[], Any]
) -> None:
    assert run(tmp_path, before).result == 1
    assert run(tmp_path, before).status == "cached"
    assert run(tmp_path, after).result == 2


def test_two_lambdas_of_one_line_are_two_functions(tmp_path: Path) -> None:
    one, two = (lambda: 1), (lambda: 2)
    assert run(tmp_path, one).result == 1
    assert run(tmp_path, one).status == "cached"
    assert run(tmp_path, two).result == 2


def test_values_of_the_module_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = (
        (from_settings, "SETTINGS", {"rate": 2}),
        (from_sizes, "SIZES", [2]),
        (from_short, "SHORT", Short(2)),
    )
    for function, name, changed in others:
        folder = tmp_path / name
        assert run(folder, function).result == 1
        assert run(folder, function).status == "cached"
        monkeypatch.setitem(globals(), name, changed)
        other = run(folder, function)
        assert (other.result, other.reason) == (2, f"variable {name} has changed")


def test_each_item_of_a_large_array_counts(tmp_path: Path) -> None:
    before, after = np.zeros(5_000), np.zeros(5_000)
    after[2_500] = 1

    def total(values: Any) -> float:
        return float(values.sum())

    assert run(tmp_path, total, values=before).result == 0
    assert run(tmp_path, total, values=before.copy()).status == "cached"
    changed = run(tmp_path, total, values=after)
    assert (changed.result, changed.reason) == (1, "argument values has changed")


def test_an_argument_may_have_any_keys(tmp_path: Path) -> None:
    def length(value: Any) -> int:
        return len(value)

    for value in ({(1, 2): 3}, {None: 1, "a": 2}):
        assert [run(tmp_path, length, value=value).status for _ in range(2)] == ["succeeded", "cached"]


@pytest.mark.parametrize("beside", [None, Short(1), threading.Lock], ids=["JSON", "pickle", "name"])
def test_the_source_of_a_function_in_an_argument_counts(tmp_path: Path, beside: Any) -> None:
    def call(functions: Any) -> Any:
        return functions["one"]()

    one, other = typed_in("def step():\n return 1"), typed_in("def step():\n return 2")
    assert run(tmp_path, call, functions={"one": one, "two": beside}).result == 1
    assert run(tmp_path, call, functions={"one": one, "two": beside}).status == "cached"
    assert run(tmp_path, call, functions={"one": other, "two": beside}).result == 2


VALUES = (
    "Short({'b', 'a', 'c', 'd'})",
    "{1: {'b', 'a', 'c', 'd'}, 'x': [Short(1)] * 2}",
    "frozenset('abcdef')",
    "[None, b'1']",
    "re.compile('x')",
    "lambda name: name in {'a', 'b', 'c', 'd'}",
)


@functools.cache
def contents_in_process(hash_seed: str) -> dict[str, str]:
    """The contents of all values in one new process: its imports take a second."""
    lines = [f"print(json.dumps([{value!r}, content_of({value})]))" for value in VALUES]
    program = "import re; from tests.unit.client.pipeline.test_fingerprints import *\n" + "\n".join(lines)
    environment = {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_the_same_text_in_each_process(value: str) -> None:
    assert contents_in_process("1")[value] == contents_in_process("2")[value] != ""


class Flat(np.ndarray[Any, Any]):
    def numpy(self) -> Flat:
        return self


class Tensor:
    """Like one of PyTorch: its pickle is another one each time."""

    dtype = "float64"

    def __init__(self, values: Any) -> None:
        self.values = np.array(values, np.float64)
        self.shape = self.values.shape

    def __reduce__(self) -> Any:
        return Tensor, (id(self),)

    def detach(self) -> Tensor:
        return self

    cpu = contiguous = detach

    def reshape(self, *shape: int) -> Flat:
        return self.values.reshape(*shape).view(Flat)


HELPERS = """
RATE = {rate}

def helped():
    return RATE + more()

def more():
    return 0

class Base:
    def value(self):
        return {base}

class Model(Base):
    @staticmethod
    def make():
        return Model()

    def total(self):
        return self.value() + {own}
"""
STEPS = """
import helpers
import package.helpers
from helpers import Model, helped

def by_name():
    return helped()

def by_module():
    return helpers.helped()

def by_package():
    return package.helpers.helped()

def by_constant():
    return helpers.RATE

def by_class():
    return Model.make().total()

def by_object(model=Model()):
    return model.total()
"""


@pytest.mark.parametrize("name", ["by_name", "by_module", "by_package", "by_constant", "by_class", "by_object"])
def test_functions_and_classes_of_other_modules_of_the_user_count(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def step(**values: int) -> Callable[..., Any]:
        (tmp_path / "package").mkdir(exist_ok=True)
        for place in (tmp_path, tmp_path / "package"):
            (place / "helpers.py").write_text(HELPERS.format(**{"rate": 1, "base": 1, "own": 0, **values}))
        (tmp_path / "package" / "__init__.py").write_text("import package\n")
        (tmp_path / "steps.py").write_text(STEPS)
        for module in ("helpers", "package", "package.helpers", "steps"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        linecache.clearcache()
        function: Callable[..., Any] = getattr(importlib.import_module("steps"), name)
        return function

    assert run(tmp_path, step()).result == 1
    assert run(tmp_path, step()).status == "cached"
    if name in ("by_class", "by_object"):
        assert run(tmp_path, step(base=2)).result == 2
        assert run(tmp_path, step(own=2)).result == 3
        assert run(tmp_path, step(rate=2)).status == "cached"
    else:
        assert run(tmp_path, step(rate=2)).result == 2
        assert run(tmp_path, step(rate=2, own=7)).status == "cached"


def test_the_text_of_a_class_needs_no_parsed_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: Any, **__: Any) -> None:
        raise SystemError("AST constructor recursion depth mismatch")  # Python 3.11 with two threads at once

    before = content_of([Short(1), Scale(2)])
    monkeypatch.setattr(ast, "parse", parse)
    assert content_of([Short(1), Scale(2)]) == before


def test_attributes_and_fields_of_a_class_count() -> None:
    def text(source: str) -> str:
        names: dict[str, Any] = {"__name__": __name__}
        exec(f"from dataclasses import dataclass\n{source}", names)
        return str(sources_of(names["step"]))

    classes = [
        "class Model:\n    rate = 1\n",
        "class Model:\n    rate = 2\n",
        "@dataclass\nclass Model:\n    rate: int = 1\n",
        "@dataclass\nclass Model:\n    rate: float = 1\n",
        "class Model:\n    class Inner:\n        rate = 1\n",
        "class Model:\n    class Inner:\n        rate = 2\n",
        "class Model:\n    @property\n    def rate(self):\n        return 1\n",
        "class Model:\n    @property\n    def rate(self):\n        return 2\n",
    ]
    step = "def step():\n    return Model().rate\n"
    assert len({text(one + step) for one in classes}) == len(classes)
    assert [text(one + step) for one in classes] == [text(one + step) for one in classes]


def test_installed_packages_and_python_do_not_count() -> None:
    def call() -> Any:
        return json.dumps, np.zeros, Pipeline, pytest.raises

    assert sources_of(call).keys() == {CODE, "a default value of the function"}
    assert len(sources_of(call)[CODE]) == len(sources_of(lambda: None)[CODE])


def test_each_item_of_a_tensor_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, uint8=np.uint8))
    texts = [content_of({"model": [Tensor(values)]}) for values in ([1, 2], [1, 2], [1, 3], [[1, 2]])]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_values_that_contain_themselves_or_cannot_be_pickled_have_a_text() -> None:
    around: list[Any] = [object]
    around.append(around)
    assert content_of(around) == content_of(around)
    assert content_of([threading.Lock]) != content_of([threading.RLock])
    assert content_of({"lock": threading.Lock()}) == content_of({"lock": threading.Lock()})
    assert content_of({"lock": threading.Lock()}) != content_of({"lock": threading.RLock()})
    generator = (n for n in range(3))
    assert content_of({"of": generator}) == repr({"of": generator})


def test_functions_that_name_each_other_through_values_have_a_text() -> None:
    around = {}

    def call() -> Any:
        return around

    around["call"] = call
    assert content_of(call) == content_of(call)


def test_the_files_of_a_path_count(tmp_path: Path) -> None:
    file = tmp_path / "data.txt"
    file.write_text("one")

    def read(file: Path) -> str:
        return file.read_text() if file.exists() else "none"

    assert run(tmp_path, read, file=file).result == "one"
    assert run(tmp_path, read, file=file).status == "cached"
    file.write_text("other")
    changed = run(tmp_path, read, file=file)
    assert (changed.result, changed.reason) == ("other", "files of argument file has changed")
    file.unlink()
    assert run(tmp_path, read, file=file).result == "none"


def test_a_file_that_the_function_writes_counts_as_it_was_left(tmp_path: Path) -> None:
    def write(to: Path) -> int:
        return to.write_text("model")

    file = tmp_path / "model.txt"
    assert run(tmp_path, write, to=file).status == "succeeded"
    assert run(tmp_path, write, to=file).status == "cached"
    file.unlink()
    assert run(tmp_path, write, to=file).status == "succeeded"
    assert file.exists()
    assert run(tmp_path, write, to=file).status == "cached"


def test_values_of_json_are_their_own_text() -> None:
    assert content_of({"sizes": [1, 2]}) == '{"sizes": [1, 2]}'
    assert content_of({1: 2}) != content_of({"1": 2})


def test_the_reason_names_what_has_changed() -> None:
    assert (
        changes({"the code": "a", "input data": "b"}, {"the code": "a", "input data": "c"})
        == "input data has changed"
    )
    assert changes({"the code": "a"}, {"the code": "a", "variable X": "b"}) == "variable X is new"
    assert changes(None, {}) == "it was not executed before"
