"""A hyperparameter, from the value a user gives to the words that a real `sh` in a job makes of it."""

from __future__ import annotations

import enum
import json
import math
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._host.execution import contract
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused
from tests.unit.client.submit.test_parameter_types import made, problems

pytestmark = pytest.mark.interpreter


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Name(str, enum.Enum):
    ANN = "ann"


class Number:
    """As numpy's and torch's scalars and arrays are."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def tolist(self) -> Any:
        return self.value


VALUES: list[tuple[Any, str]] = [
    (True, "true"),
    (False, "false"),
    (0, "0"),
    (10**30, "1" + "0" * 30),
    (0.1, "0.1"),
    (1 / 3, "0.3333333333333333"),
    (1e-05, "1e-05"),
    (5e-324, "5e-324"),
    ("True", "True"),
    ("", ""),
    (" a 'b' ", " a 'b' "),
    (Colour.RED, "red"),
    (Size.BIG, "3"),
    (Name.ANN, "ann"),
    (Path("a b/c"), "a b/c"),
    ([1, Colour.RED, Path("x")], '[1, "red", "x"]'),
    ((1, 2), "[1, 2]"),
    ({"a": None, "ü": [Size.BIG]}, '{"a": null, "ü": [3]}'),
    (Number(0.25), "0.25"),
    (Number(True), "true"),
    (Number([1, 2.5]), "[1, 2.5]"),
    ([Number(3)], "[3]"),
]


def sent(values: Mapping[str, Any]) -> dict[str, str]:
    wire = made(parameters=values).plan().request.to_wire()
    return {each["Name"]: each["Value"] for each in wire["HyperParameters"]}


@pytest.mark.parametrize(("value", "text"), VALUES, ids=lambda value: ascii(value)[:30])
def test_values_are_written_as_a_user_would(value: Any, text: str) -> None:
    assert sent({"x": value, "unset": None}) == {"x": text}


@settings(max_examples=200, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_no_digit_of_a_float_is_lost(value: float) -> None:
    back = float(sent({"x": value})["x"])
    assert back == value
    assert math.copysign(1, back) == math.copysign(1, value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "pass the string 'nan'"),
        (-math.inf, "pass the string '-inf'"),
        ([math.inf], "not JSON compliant"),
        ({1, 2}, "set cannot be written as text or JSON"),
        (b"x", "bytes cannot be written"),
        ({(1, 2): 3}, "cannot be written as text or JSON"),
        (object(), "object cannot be written"),
        ("a\0b", "zero byte"),
    ],
)
def test_what_has_no_faithful_text_is_refused_by_its_name(value: Any, words: str) -> None:
    ((where, what),) = problems(made(parameters={"good": 1, "bad": value})).items()
    assert "bad" in where or "HyperParameters" in where
    assert words in what


# ---- in the job -------------------------------------------------------------------------------------------

PLAIN = st.text(
    st.one_of(st.sampled_from("abz019@%+=:,./-_"), st.characters(categories=["L", "N"])), min_size=1, max_size=10
)
HOSTILE = st.one_of(
    st.sampled_from(
        ["", " ", "-n", "--", "$(id)", "`id`", "'", '"', "\\", "\n", "a\n", "$HOME", "*", "~", "&;|", "é🙂"]
    ),
    st.text(
        st.one_of(
            st.sampled_from(" \t\n'\"*?[]\\$`(){};&|<>!#~-"), st.characters(exclude_characters="\0", codec="utf-8")
        )
    ),
)
# Every value as an argument and as a variable of its own, each ended by a zero byte.
SAID = 'for word in "$@" {variables}; do printf "%s\\0" "$word"; done'


def in_a_job(values: Mapping[str, str], take: str, folder: Path) -> list[str]:
    """What `sh` has as its arguments, after `take`, and in the variables of the parameters."""
    request = made(parameters=values).plan().request
    instance = contract.instances("train1", request)[0]
    variables = contract.environment("train1", request, instance, input_files={}).at("/ml")
    quoted = " ".join(f'"$PAI_HPS_{name.upper()}"' for name in values)
    done = subprocess.run(
        ["sh", "-c", f"{take}\n{SAID.format(variables=quoted)}"],
        env={"PATH": os.defpath, **variables},
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(variables["PAI_HPS"]) == values
    return done.stdout.decode().split("\0")[:-1]


def expected(values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name}", value)] + [*values.values()]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which patterns match."""
    folder = tmp_path_factory.mktemp("crowded")
    for name in ("a", "-n", "*", "b c"):
        (folder / name).touch()
    return folder


def named(values: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    """Twenty values for each start of a shell."""
    return st.lists(values, min_size=20, max_size=20).map(
        lambda each: {f"p{i}": text for i, text in enumerate(each)}
    )


@settings(max_examples=40, deadline=None)
@given(values=named(PLAIN))
def test_plain_values_need_no_quotes_in_the_command(values: dict[str, str], crowded: Path) -> None:
    assert in_a_job(values, "set -- $PAI_USER_ARGS", crowded) == expected(values)


@settings(max_examples=40, deadline=None)
@given(values=named(HOSTILE))
def test_any_value_comes_back_through_eval(values: dict[str, str], crowded: Path) -> None:
    for take in ("eval set -- $PAI_USER_ARGS", 'eval "set -- $PAI_USER_ARGS"'):
        assert in_a_job(values, take, crowded) == expected(values)


def test_a_zero_byte_is_refused_before_anything_is_sent() -> None:
    with refused(InvalidInputError, "request: HyperParameters[0].Value"):
        made(parameters={"x": "a\0b"}).plan()
