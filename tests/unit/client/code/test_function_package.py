"""A function call as the code of a job: what is pickled, what is checked in the job, what is signed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy
import pytest

from pai_sdk._client.code.function_package import FOLDER, PROGRAM, FunctionCall, job_key, write_package
from pai_sdk._data.run.functions.calling import CALL_FILE, error_of, open_signed, signed
from pai_sdk.errors import InvalidInputError, RemoteTraceback
from tests.support.interpreters import INTERPRETERS

KEY, NONCE = b"k" * 32, "n1"


def package(folder: Path, function: Any, *args: Any, **options: Any) -> dict[str, Any]:
    """Write a package and return the header of its call."""
    folder.mkdir(exist_ok=True)
    is_training = options.pop("is_training", False)
    call = FunctionCall(function, args, options.pop("kwargs", {}), is_training)
    write_package(call, folder, key=KEY, nonce=NONCE, **options)
    return open_signed(KEY, (folder / FOLDER / CALL_FILE).read_bytes())[0]


def run(folder: Path, *, python: str = sys.executable, key: bytes = KEY) -> tuple[Any, dict[str, Any], bytes]:
    """Run the program as a job does, in a Python without our packages; gives process, header and payload."""
    environment = {"FUNCTION_CALL_KEY": key.hex(), "PAI_OUTPUT_RESULT": str(folder / "result"), "RANK": "0"}
    done = subprocess.run(
        [python, "-S", PROGRAM],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    result = folder / "result" / "rank-0"
    header, payload = open_signed(key, result.read_bytes()) if result.exists() else ({}, b"")
    return done, header, payload


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of the user, which is no installed one, with another one behind it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "own_inner.py").write_text("FACTOR = 3\ndef times(x):\n    return FACTOR * x\n")
    (folder / "own_outer.py").write_text("import own_inner\ndef double(x):\n    return own_inner.times(x)\n")
    monkeypatch.syspath_prepend(str(folder))
    import own_outer  # type: ignore[import-not-found]

    yield own_outer
    for name in ("own_outer", "own_inner"):
        del sys.modules[name]


def test_a_call_runs_in_a_python_without_any_package(tmp_path: Path) -> None:
    offset = 5

    def add(a: int, *, b: int) -> dict[str, Any]:
        print("adding")
        return {"sum": a + b + offset, "key": os.environ.get("FUNCTION_CALL_KEY"), "cwd": str(Path.cwd())}

    package(tmp_path, add, 1, kwargs={"b": 2})
    done, header, payload = run(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "adding\n", "")
    assert header == {"kind": "value", "nonce": NONCE}
    assert cloudpickle.loads(payload) == {"sum": 8, "key": None, "cwd": str(tmp_path)}


def test_modules_of_the_user_go_by_value(tmp_path: Path, own_module: ModuleType) -> None:
    package(tmp_path / "job", own_module.double, 2)
    done, _, payload = run(tmp_path / "job")
    assert (done.stderr, cloudpickle.loads(payload)) == ("", 6)
    assert cloudpickle.list_registry_pickle_by_value() == set()


def test_modules_of_the_code_folder_are_imported_there(tmp_path: Path, own_module: ModuleType) -> None:
    job = tmp_path / "job"
    package(job, own_module.double, 2, source_dir=tmp_path / "mine")
    (job / "own_outer.py").write_text("def double(x):\n    return 'imported'\n")
    done, _, payload = run(job)
    assert (done.stderr, cloudpickle.loads(payload)) == ("", "imported")


def test_an_error_comes_with_its_cause_and_its_traceback(tmp_path: Path) -> None:
    def fail() -> None:
        try:
            {}["key"]
        except KeyError as error:
            raise ValueError("oh") from error

    package(tmp_path, fail)
    done, header, payload = run(tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 2
    assert "run.py" not in done.stderr
    error = error_of(header, payload)
    assert (type(error), str(error)) == (ValueError, "oh")
    assert isinstance(error.__cause__, KeyError)
    assert isinstance(error.__cause__.__cause__, RemoteTraceback)


@pytest.mark.parametrize(("code", "exit_code", "text"), [(3, 3, ""), ("why", 1, "why\n"), (None, 0, "")])
def test_sys_exit(tmp_path: Path, code: Any, exit_code: int, text: str) -> None:
    package(tmp_path, sys.exit, code)
    done, header, _ = run(tmp_path)
    assert (done.returncode, done.stderr) == (exit_code, text)
    assert (header["kind"], header["exit_code"]) == ("exit", exit_code)


def test_a_value_that_cannot_be_pickled_is_an_error(tmp_path: Path) -> None:
    package(tmp_path, threading.Lock)
    done, header, _ = run(tmp_path)
    assert done.returncode == 1
    assert "cannot pickle" in header["message"]


# ---- versions


@pytest.mark.parametrize("version", [name for name in INTERPRETERS if name != "{}.{}".format(*sys.version_info)])
def test_another_python_refuses_before_it_unpickles(tmp_path: Path, version: str) -> None:
    package(tmp_path, lambda: 1)
    done, header, _ = run(tmp_path, python=INTERPRETERS[version])
    assert (done.returncode, header["kind"]) == (1, "refused")
    assert f"this is Python {version}" in header["message"]
    assert header["message"] in done.stderr


def test_a_package_that_is_missing_in_the_job_is_named(tmp_path: Path) -> None:
    header = package(tmp_path, lambda: numpy.zeros(1))
    assert header["modules"] == {"numpy": ["numpy", numpy.__version__]}
    done, header, _ = run(tmp_path)  # with -S
    assert (done.returncode, header["kind"]) == (1, "refused")
    assert f"add 'numpy=={numpy.__version__}' to `requirements`" in header["message"]


def test_another_version_in_the_job_is_refused(tmp_path: Path) -> None:
    package(tmp_path, lambda: numpy.zeros(1))
    call = tmp_path / FOLDER / CALL_FILE
    header, payload = open_signed(KEY, call.read_bytes())
    header["modules"] = {"numpy": ["numpy", "0.1"]}
    call.write_bytes(signed(KEY, header, payload))
    environment = {**os.environ, "FUNCTION_CALL_KEY": KEY.hex(), "PAI_OUTPUT_RESULT": str(tmp_path / "result")}
    done = subprocess.run(
        [sys.executable, PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "it was pickled with numpy 0.1, and here is" in done.stderr


def test_requirements_that_contradict_are_found_before_sending(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"requirements\[1\].*conflicts with NumPy") as caught:
        package(tmp_path, lambda: numpy.zeros(1), requirements=["rich==1.0", "NumPy==0.9", "numpy"])
    assert caught.value.problems[0].hint == f"'NumPy=={numpy.__version__}'"
    package(tmp_path / "b", lambda: numpy.zeros(1), requirements=[f"numpy=={numpy.__version__}"])


def test_what_cannot_be_pickled_is_named_before_sending(tmp_path: Path) -> None:
    lock = threading.Lock()

    def train() -> object:
        return lock

    with pytest.raises(InvalidInputError, match="train cannot be pickled"):
        package(tmp_path, train)


def test_an_open_file_is_not_sent_as_its_content(tmp_path: Path) -> None:
    with (
        Path(__file__).open() as file,
        pytest.raises(InvalidInputError, match="cannot pickle 'TextIOWrapper' object"),
    ):
        package(tmp_path, lambda of: of.read(), [file])


async def _later() -> int:
    return 1


async def _each_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda: (n * n for n in range(4)), "generator"),
        (lambda: _later(), "coroutine"),
        (lambda: _each_later(), "async_generator"),
        (lambda: Path(PROGRAM).open(), "TextIOWrapper"),  # noqa: SIM115
        (lambda: {"of": Path(PROGRAM).open()}, "dict"),  # noqa: SIM115
        (lambda: [threading.Lock()], "list"),
        (lambda: {"of": (n for n in "ab")}, "dict"),
    ],
    ids=["generator", "coroutine", "async generator", "file", "file inside", "lock", "generator inside"],
)
def test_a_value_that_cannot_be_sent_back_is_an_error(tmp_path: Path, function: Any, kind: str) -> None:
    package(tmp_path, function)
    done, header, _ = run(tmp_path)
    assert (done.returncode, header["kind"]) == (1, "refused")
    assert f"returned a {kind}" in header["message"]
    assert header["message"] in done.stderr


def test_the_reason_of_sys_exit_comes_along(tmp_path: Path) -> None:
    package(tmp_path, lambda: sys.exit("no data"))
    done, header, _ = run(tmp_path)
    assert (done.returncode, header["kind"], header["exit_code"]) == (1, "exit", 1)
    assert header["message"] == "the function called sys.exit: no data"
    assert done.stderr.splitlines()[-1] == "no data"


def test_an_error_without_a_text_of_its_own_is_still_one(tmp_path: Path) -> None:
    def fail() -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise KeyError("text")

        raise Odd

    package(tmp_path, fail)
    done, header, _ = run(tmp_path)
    assert (done.returncode, header["kind"], header["type"]) == (1, "error", "Odd")


# ---- signatures


@pytest.mark.parametrize("at", [0, 70, -1])
def test_a_changed_call_is_not_unpickled(tmp_path: Path, at: int) -> None:
    package(tmp_path, lambda: 1)
    call = tmp_path / FOLDER / CALL_FILE
    content = bytearray(call.read_bytes())
    content[at] ^= 1
    call.write_bytes(content)
    done, header, _ = run(tmp_path)
    assert (done.returncode, header) == (1, {})
    assert "the signature is wrong" in done.stderr


def test_the_key_of_a_job_is_the_same_in_each_process_of_the_user(clean_home: Path) -> None:
    first = job_key("a")
    assert (len(first), job_key("a") == first, job_key("b") == first) == (32, True, False)
    secret = clean_home / ".pai" / "function-secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    program = "from pai_sdk._client.code.function_package import job_key; print(job_key('a').hex())"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == first.hex()


def test_the_key_is_nowhere_in_the_package(tmp_path: Path) -> None:
    package(tmp_path, lambda: 1)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"run.py", CALL_FILE, "cloudpickle.py"}
    assert not any(KEY in path.read_bytes() or KEY.hex().encode() in path.read_bytes() for path in files)


def test_a_training_is_called_as_here(tmp_path: Path) -> None:
    """With the modules that are shipped with each job that mentions pai_sdk."""
    from pai_sdk._client.code.job_package import job_package

    def train(config: dict[str, Any]) -> Iterator[Any]:
        yield {"loss": config["lr"]}
        return {"loss": config["lr"] / 2}

    package(tmp_path, train, {"lr": 1.0}, is_training=True)
    environment = {
        "FUNCTION_CALL_KEY": KEY.hex(),
        "PAI_OUTPUT_RESULT": str(tmp_path / "result"),
        "PAI_WORKING_DIR": str(tmp_path / "usercode"),
        "PYTHONPATH": str(job_package()),
    }
    subprocess.run([sys.executable, "-S", PROGRAM], cwd=tmp_path, env=environment, timeout=60, check=True)
    from pai_sdk._data.run.events.records import read_scalars

    (events,) = (tmp_path / "output" / "tensorboard").iterdir()
    assert [(event.tag, event.step, event.value) for event in read_scalars(events)] == [
        ("loss", 1, 1.0),
        ("loss", 2, 0.5),
    ]
    assert json.loads((tmp_path / "result" / "rank-0").read_bytes().splitlines()[1])["kind"] == "value"
