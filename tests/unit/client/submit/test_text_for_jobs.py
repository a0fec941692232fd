"""Text that only the job would look at: line ends of Windows, byte order marks, other encodings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.code.script_text import is_shell, is_windows_line, programs_in
from pai_sdk._client.session import Session
from pai_sdk._client.submit.estimator import Estimator
from pai_sdk._client.submit.problems import Problems
from pai_sdk._client.submit.request_fields import requirement_list
from pai_sdk.errors import InvalidInputError, Problem


@pytest.fixture
def session() -> Session:
    key = {"access_key_id": "i", "access_key_secret": "s"}
    nowhere = "http://127.0.0.1:9"  # a plan needs no network
    return Session("cn-x", "7", oss_bucket_name="models", endpoint=nowhere, oss_endpoint=nowhere, **key)


def plan(session: Session, command: Any, **parameters: Any) -> Any:
    return Estimator("python:3.11", command, instance_type="ecs.c6.large", session=session, **parameters).plan()


def sent(session: Session, command: Any, **parameters: Any) -> list[str]:
    return list(plan(session, command, **parameters).request.algorithm_spec.command)


def where(session: Session, command: Any, **parameters: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as refused:
        plan(session, command, **parameters)
    return [problem.where for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("set -e\r\nif true; then\r\n  echo done\r\nfi\r\n", "set -e\nif true; then\n  echo done\nfi\n"),
        ("export NAME=model\r\ntrue", "export NAME=model\ntrue"),
        ("\ufeffpython -V\r", "python -V"),
        ("printf 'a\\r\\n'", "printf 'a\\r\\n'"),
    ],
)
def test_a_command_has_the_line_ends_of_unix(session: Session, command: str, script: str) -> None:
    assert sent(session, command) == ["sh", "-c", script]


@pytest.mark.parametrize(
    ("command", "places"),
    [
        (["bash", "-ec", "export NAME=model\r\necho $NAME"], ["command[2]"]),
        (["python", "train.py\r"], ["command[1]"]),
    ],
)
def test_a_list_is_sent_unchanged_or_refused(session: Session, command: list[str], places: list[str]) -> None:
    assert where(session, command) == places


def test_a_list_may_have_line_ends_that_no_shell_reads(session: Session) -> None:
    command = ["python", "-c", "print(1)\r\nprint(2)\r\n"]
    assert sent(session, command) == command


def test_values_and_requirements_from_windows_files_are_refused(session: Session) -> None:
    places = where(
        session,
        "true",
        hyperparameters={"name": "model\r", "text": "two\r\nlines\r\n"},
        environments={"NAME": "model\r", "CERTIFICATE": "a\r\nb\r\n"},
        requirements=["numpy==2.1", "rich==13.0\r"],
    )
    assert places == ["hyperparameters['name']", "environments['NAME']", "requirements[1]"]


@pytest.mark.parametrize(
    ("command", "name", "content"),
    [
        ("bash run.sh", "run.sh", b"export NAME=model\r\necho $NAME\r\n"),
        ("cd /tmp; . ./run.sh && true", "run.sh", b"NAME=model\r\n"),
        (["bash", "run.sh"], "run.sh", b"NAME=model\r\n"),
        ("./start --fast", "start", b"#!/usr/bin/env python3\r\nprint(1)\r\n"),
        ("LR=1 exec ./start | tee log", "start", b"#!/bin/bash\r\ntrue\r\n"),
        ("./run.sh", "run.sh", b"\xef\xbb\xbf#!/bin/sh\ntrue\n"),
        ("python train.py", "train.py", "print(1)\n".encode("utf-16")),
        ("python train.py", "requirements.txt", "numpy\n".encode("utf-16-le")),
        ("python train.py", "requirements.txt", "numpy # für\n".encode("latin-1")),
    ],
)
def test_a_file_that_the_job_cannot_read_is_refused(
    session: Session, tmp_path: Path, command: Any, name: str, content: bytes
) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / name).write_bytes(content)
    assert any(name in place for place in where(session, command, source_dir=tmp_path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.py", b"#!/usr/bin/env python3\r\nprint(1)\r\n"),
        ("train.py", b"\xef\xbb\xbfprint(1)\r\n"),
        ("requirements.txt", "numpy\r\n".encode("utf-16")),
        ("requirements.txt", b"\xef\xbb\xbfnumpy # f\xc3\xbcr\r\n"),
        ("data.csv", b"a,b\r\n"),
        ("windows.bat", b"echo off\r\n"),
    ],
)
def test_a_file_that_its_program_can_read_goes_along(
    session: Session, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / name).write_bytes(content)
    assert plan(session, f"python train.py < {name}", source_dir=tmp_path).uploads


@pytest.mark.parametrize("form", ["{}", "{}==0.0.1", "{}[service]>=0.1 ; python_version > '3'"])
@pytest.mark.parametrize("words", [("pai", "sdk"), ("PAI", "Training", "SDK")])
@pytest.mark.parametrize("separator", ["-", "_", "."])
def test_the_package_of_another_company_is_no_requirement(
    form: str, words: tuple[str, ...], separator: str
) -> None:
    problems = Problems()
    requirement_list(["numpy", form.format(separator.join(words))], problems)
    assert [problem.where for problem in problems.entries] == ["requirements[1]"]


@pytest.mark.parametrize("name", ["pai-sdk-tools", "pai-sdk @ file:///wheels/pai_sdk.whl", "./pai_sdk.whl"])
def test_others_are(name: str) -> None:
    problems = Problems()
    assert requirement_list([name], problems) == [name]
    assert problems.entries == []


def test_half_a_line_end_of_windows_is_recognized_in_single_lines() -> None:
    assert is_windows_line("model\r")
    assert not is_windows_line("two\nlines\r")


def test_a_shell_script_is_recognized_by_its_shell() -> None:
    assert is_shell(["/bin/bash", "-o", "pipefail", "-ec", "exit 1"])
    assert not is_shell(["python", "-c", "exit(1)"])


def test_the_programs_of_a_script() -> None:
    script = "cd src && ./run.sh | tee log; LR=1 python train.py"
    assert [*programs_in(script)] == ["cd", "./run.sh", "tee", "python"]


def test_problems_are_collected_under_their_parameter() -> None:
    problems = Problems()
    with problems.under("max_run_time"):
        raise InvalidInputError([Problem("", "must be positive")])
    assert [str(problem) for problem in problems.entries] == ["max_run_time: must be positive"]
