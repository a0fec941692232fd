"""YAML files: what scalars mean, and where each value stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._client.submit.yaml_file import path_text, read_scalar, read_yaml
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused


def written(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("5E3", 5000.0),
        ("-1", -1),
        ("0x10", 16),
        ("0o17", 15),
        ("007", "007"),
        ("1_000", "1_000"),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2026-11-22", "2026-11-22"),
        ("true", True),
        ("null", None),
        ("~", None),
        ("'3'", "3"),
        ("[1, a]", [1, "a"]),
        ("a: b: c", "a: b: c"),
        ("", None),
    ],
)
def test_scalars_mean_what_they_look_like(text: str, value: object) -> None:
    found = read_scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_every_value_has_its_line(tmp_path: Path) -> None:
    file = read_yaml(written(tmp_path, "# a comment\na: 1\nb:\n  c:\n    - x\n    - {d: y}\n"))
    assert file.value == {"a": 1, "b": {"c": ["x", {"d": "y"}]}}
    assert file.where("b['c'][1].d") == f"{file.path}:6: b['c'][1].d"
    assert file.where("b['c'][7]") == f"{file.path}:4: b['c'][7]"
    assert file.where("z") == f"{file.path}: z"


def test_a_key_that_is_given_twice_is_a_problem(tmp_path: Path) -> None:
    file = read_yaml(written(tmp_path, "labels:\n  a: 1\n  a: 2\n"))
    assert [str(problem) for problem in file.problems] == [
        f"{file.path}:3: labels['a']: is a duplicate key, first in line 2"
    ]


def test_merged_keys_are_no_repetition(tmp_path: Path) -> None:
    file = read_yaml(written(tmp_path, "base: &b {x: 1}\none: {<<: *b, y: 2}\n"))
    assert (file.value["one"], list(file.problems)) == ({"x": 1, "y": 2}, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "job.yaml:1: not YAML"),
        ("a: 1\nb: *nowhere\n", "job.yaml:2: not YAML: found undefined alias"),
        ("a: &a [*a]", "contains itself"),
        ("- 1\n---\n- 2\n", "expected a single document"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("a: \x01", "not YAML"),
    ],
)
def test_what_is_no_yaml_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match="not YAML") as caught:
        read_yaml(written(tmp_path, text))
    assert said in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a: \xff")
    with refused(InvalidInputError, str(tmp_path / "latin")):
        read_yaml(tmp_path / "latin")
    with refused(InvalidInputError, str(tmp_path / "nowhere.yaml")):
        read_yaml(tmp_path / "nowhere.yaml")


@given(st.text(max_size=60))
def test_any_text_is_read_or_kept(text: str) -> None:
    read_scalar(text)


def test_paths_are_written_as_problems_name_them() -> None:
    assert path_text(("inputs", "train")) == "inputs['train']"
    assert path_text(("requirements", 0)) == "requirements[0]"
