"""Text of clients is parsed in linear time: one request that grows may not freeze a service.

Each regular expression, and each parser of tables, gets texts that it matches with one piece of them repeated. The
processor time of two sizes is compared: four times the text may take four times as long, and not sixteen times.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import AnyStr

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pai_sdk._data.storage.uri import is_remote_uri
from pai_sdk._data.trace.types import parse_type
from pai_sdk._service.odps.statements import read_partition, read_statement
from pai_sdk._service.odps.table_errors import TableError
from pai_sdk._service.odps.table_rights import parse_table_uri
from pai_sdk._wire.pai.definitions import ParameterDefinition, hyperparameter_problems
from pai_sdk._wire.pai.secret_values import masked_command
from pai_sdk._wire.pai.spec import HyperParameter
from pai_sdk.errors import InvalidInputError

PACKAGES = ("_service", "_wire.pai", "_client.api", "_data.storage")
ATOMS = ("a", " ", "-", "1", "a ", "=", ",", "/", "(", "\\", "'")
ENDS = ("", "\0!")
SMALL, LARGE = 1_000, 4_000
SUSPICIOUS_S = 0.003  # a linear pass over the small text takes a tenth of that
LARGEST_RATIO = 9.0  # linear: 4, quadratic: 16
METHODS = ("fullmatch", "match", "search", "findall", "finditer", "sub", "split")
INLINE = re.compile(rf"\bre\.(?:{'|'.join(METHODS)})\(")


def modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        parent = importlib.import_module(f"pai_sdk.{package}")
        yield parent
        for found in pkgutil.walk_packages(parent.__path__, f"{parent.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def patterns() -> dict[str, tuple[re.Pattern[AnyStr], set[str]]]:
    """Each pattern of the packages with the methods that it is used by."""
    found = {}
    for module in modules():
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                used = {method for method in METHODS if re.search(rf"\b{name}\.{method}\b", source)}
                found[f"{module.__name__}.{name}"] = value, used
        # Most modules have none, and every process of pytest would parse them all.
        for call in ast.walk(ast.parse(source)) if INLINE.search(source) else ():
            if inline := inline_pattern(call):
                found[f"{module.__name__}:{call.lineno}"] = inline
    # A pattern that another module imports has no use here, and one whose use is not seen may be searched.
    used_by = {pattern: methods for pattern, methods in found.values() if methods}
    return {
        name: (pattern, methods or used_by.get(pattern) or {"search"})
        for name, (pattern, methods) in found.items()
    }


def inline_pattern(call: ast.AST) -> tuple[re.Pattern[str], set[str]] | None:
    """The pattern of `re.sub("…", …)` and the like."""
    match call:
        case ast.Call(func=ast.Attribute(ast.Name("re"), method), args=[ast.Constant(str(text)), *_]) if (
            method in METHODS
        ):
            return re.compile(text), {method}
    return None


def seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def grows_too_fast(work: Callable[[int], object]) -> bool:
    """Whether four times the size takes much more than four times as long."""
    began = time.process_time()
    work(SMALL)
    if time.process_time() - began < SUSPICIOUS_S:
        return False
    return all(seconds(lambda: work(LARGE)) / seconds(lambda: work(SMALL)) > LARGEST_RATIO for _ in range(2))


def pumped(text: str) -> Iterator[Callable[[int], str]]:
    """The text with a piece repeated at one place, and with an end that it should not have."""
    for place in range(len(text) + 1):
        for atom in {*ATOMS, text[max(0, place - 2) : place], text[:place]} - {""}:
            for end in ENDS:
                yield (
                    lambda size, place=place, atom=atom, end=end: (
                        text[:place] + atom * (size // len(atom)) + text[place:] + end
                    )
                )


def slow_texts(parse: Callable[[str], object], samples: Iterable[str]) -> list[str]:
    def work(make: Callable[[int], str], size: int) -> None:
        with contextlib.suppress(TableError, InvalidInputError, ValueError):
            parse(make(size))

    return [
        make(20)
        for sample in samples
        for make in pumped(sample)
        if grows_too_fast(lambda size, make=make: work(make, size))
    ]


def matcher(pattern: re.Pattern[AnyStr], method: str) -> Callable[[str], object]:
    def parse(text: str) -> object:
        given = text.encode() if isinstance(pattern.pattern, bytes) else text
        if method == "sub":
            return pattern.sub(given[:0], given)
        found = getattr(pattern, method)(given)
        return list(found) if method == "finditer" else found

    return parse


ALL = patterns()


def test_every_pattern_is_found() -> None:
    calls = re.compile(r"\bre\.(?:compile|match|fullmatch|search|sub|split|findall|finditer)\(")
    names = {name.rpartition(":")[0] or name.rpartition(".")[0] for name in ALL}
    for module in modules():
        assert module.__name__ in names or not calls.search(inspect.getsource(module)), module.__name__
    assert len(ALL) > 40


@pytest.mark.parametrize("name", sorted(ALL))
def test_patterns_take_linear_time(name: str) -> None:
    pattern, methods = ALL[name]

    @settings(
        max_examples=3,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.from_regex(pattern, fullmatch=True))
    def holds(sample: AnyStr) -> None:
        text = sample[:60].decode("latin-1") if isinstance(sample, bytes) else sample[:60]
        for method in methods:
            assert slow_texts(matcher(pattern, method), [text]) == []

    holds()


STATEMENTS = (
    "ALTER TABLE p ADD IF NOT EXISTS PARTITION (dt=x y, hour='2')",
    'ALTER TABLE shop.`p` DROP PARTITION (`dt`="1");',
    "DROP TABLE IF EXISTS shop.`t`;",
    "CREATE TABLE IF NOT EXISTS shop.`t` (`a` ARRAY<STRUCT<x:INT>> NOT NULL COMMENT 'it\\'s', b DECIMAL(10,2)) "
    "COMMENT 'c' PARTITIONED BY (dt STRING COMMENT 'd') TBLPROPERTIES ('k' = 'v', \"l\" = 'w') LIFECYCLE 7",
)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_statements_take_linear_time(sql: str) -> None:
    assert slow_texts(read_statement, [sql]) == []


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (read_partition, "dt='1',`hour`=2/x = \"3\""),
        (parse_table_uri, "odps://shop/tables/clicks/dt=1/hour=2/"),
        (is_remote_uri, "odps://shop/tables/clicks/dt=1"),
        (parse_type, "map<string,array<struct<a:decimal(10,2),b:bigint>>>"),
        (masked_command, "python -m train --api-key hunter2 PASSWORD='x y' --lr=0.1"),
    ],
)
def test_parsers_take_linear_time(parse: Callable[[str], object], text: str) -> None:
    assert slow_texts(parse, [text]) == []


def test_the_problems_of_many_hyperparameters_take_linear_time() -> None:
    def work(size: int) -> None:
        known = [ParameterDefinition(name=f"parameter_of_the_algorithm_{n}") for n in range(size)]
        values = [HyperParameter(name=f"parameter_that_is_unknown_{n}", value="1") for n in range(size)]
        assert len(list(hyperparameter_problems(known, values, "HyperParameters"))) == size

    assert seconds(lambda: work(200)) / seconds(lambda: work(50)) < LARGEST_RATIO
