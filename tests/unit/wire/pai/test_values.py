"""Values of users: numbers of numpy, mappings, and keys that JSON cannot tell apart."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from pai_sdk.estimator import UserVpcConfig
from pai_sdk.job import HyperParameterDefinition

from pai_sdk._wire.pai.values import hyperparameter_text, python_value
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused


class Config(Mapping[str, Any]):
    def __init__(self, **values: Any) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        ({"n": np.int64(3), np.int64(1): (np.float64(2.0),)}, {"n": 3, 1: (2.0,)}),
        (Config(net=Config(depth=np.int8(3))), {"net": {"depth": 3}}),
        (OrderedDict(a=1), {"a": 1}),
        (Pair(1, 2), Pair(1, 2)),
        (np.int64, np.int64),
    ],
)
def test_values_become_those_of_python(value: Any, expected: Any) -> None:
    assert repr(python_value(value)) == repr(expected)


def test_a_mapping_in_a_mapping_is_a_hyperparameter() -> None:
    value = Config(net=Config(depth=3), size=(np.int64(1), 2))
    assert hyperparameter_text(value) == '{"net": {"depth": 3}, "size": [1, 2]}'


@pytest.mark.parametrize("kind", [UserVpcConfig, HyperParameterDefinition])
def test_values_by_position_are_asked_for_by_name(kind: type) -> None:
    with refused(InvalidInputError, f"{kind.__name__}()"):
        kind("vpc-1", "sg-1")


def test_what_json_cannot_keep_apart_is_refused() -> None:
    with pytest.raises(ValueError, match="one key in JSON"):
        hyperparameter_text({1: "a", "1": "b"})
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="contains itself"):
        hyperparameter_text(cycle)


def test_values_become_strings_or_json() -> None:
    values = (True, 0.1, "a b", [1, "x"])
    assert [hyperparameter_text(value) for value in values] == ["true", "0.1", "a b", '[1, "x"]']


def test_numbers_of_numpy_are_replaced_at_any_depth() -> None:
    assert python_value({"sizes": (np.int64(3), np.arange(2))}) == {"sizes": (3, [0, 1])}
