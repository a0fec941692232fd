"""What of a function counts for the cache of a pipeline: its code, and the values that it takes from elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pai_sdk.pipeline import Pipeline
from pai_sdk.pipeline.records import StepRecord

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
        (typed_in("def step():\n return int(1.0)"), typed_in("def step():\n return round(1.7)")),
    ],
    ids=["keywords", "positions", "object", "method", "names"],
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


def test_lists_and_dicts_of_the_module_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for function, name, changed in ((from_settings, "SETTINGS", {"rate": 2}), (from_sizes, "SIZES", [2])):
        folder = tmp_path / name
        assert run(folder, function).result == 1
        assert run(folder, function).status == "cached"
        monkeypatch.setitem(globals(), name, changed)
        assert run(folder, function).result == 2


def test_the_files_of_a_path_count(tmp_path: Path) -> None:
    file = tmp_path / "data.txt"
    file.write_text("one")

    def read(file: Path) -> str:
        return file.read_text() if file.exists() else "none"

    assert run(tmp_path, read, file=file).result == "one"
    assert run(tmp_path, read, file=file).status == "cached"
    file.write_text("other")
    changed = run(tmp_path, read, file=file)
    assert (changed.result, changed.reason) == ("other", "argument file has changed")
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
