"""What a user gets from `pip install`, and what the first `import pai_sdk` does to their process: nothing."""

from __future__ import annotations

import ast
import csv
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import distributions, entry_points, requires
from pathlib import Path

import pytest

from pai_sdk._core.extras import DISTRIBUTION

pytestmark = pytest.mark.interpreter

ROOT = Path(__file__).resolve().parents[2]

HEAVY = (
    "IPython",
    "alibabacloud_credentials",
    "docker",
    "fastapi",
    "ipywidgets",
    "oss2",
    "psutil",
    "sqlalchemy",
    "uvicorn",
)
NOT_EVEN = ("pydantic", "requests", "rich", "tenacity", "tqdm", "typer")

# Part of what a declared library promises: requests' exceptions and adapters, FastAPI's requests and responses.
COMES_WITH = {
    "urllib3": "requests",
    "starlette": "fastapi",
    "anyio": "fastapi",
    "pydantic_core": "pydantic",
    "pydevd": "debugpy",
    "oss2": "oss2",  # which the pip of Python 3.11.2 installs without a list of its files
    "ray": "ray",  # which the tests on other Pythons do without
}

# Prints what importing did to the process, as JSON.
OBSERVER = """
import json, logging, sys, threading, warnings
filters, hooks = list(warnings.filters), (sys.excepthook, sys.displayhook)
{statement}
root, ours = logging.getLogger(), logging.getLogger("pai_sdk")
json.dump({{
    "modules": sorted({{name.partition(".")[0] for name in sys.modules}}),
    "handlers": [repr(handler) for handler in root.handlers],
    "our handlers": [repr(h) for h in ours.handlers if not isinstance(h, logging.NullHandler)],
    "levels": [root.level, ours.level],
    "warning filters changed": warnings.filters != filters,
    "hooks changed": (sys.excepthook, sys.displayhook) != hooks,
    "threads": threading.active_count(),
}}, sys.stdout)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pai_sdk").rglob("*.py*")}
    sources = {name for name in sources if name.endswith((".py", ".pyi"))}
    assert sources | {"pai_sdk/py.typed"} <= packed
    assert {name.partition("/")[0] for name in packed} == {"pai_sdk"}
    assert [name for name in packed if "__pycache__" in name or "test" in Path(name).name] == []


def test_the_wheel_holds_the_code_of_the_demo(wheel: zipfile.ZipFile) -> None:
    folder = "pai_sdk/cli/demo_code/"
    packed = {name.removeprefix(folder) for name in wheel.namelist() if name.startswith(folder)}
    assert packed == {"prepare.py", "train.py", "requirements.txt"}


def test_the_wheel_holds_the_files_for_docker_compose(wheel: zipfile.ZipFile) -> None:
    folder = "pai_sdk/cli/service/team/"
    packed = {name.removeprefix(folder) for name in wheel.namelist() if name.startswith(folder)}
    assert packed == {".dockerignore", "Dockerfile", "compose.yaml"}


def test_the_wheel_tells_what_it_is(wheel: zipfile.ZipFile) -> None:
    files = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    metadata = wheel.read(files["METADATA"]).decode()
    assert f"Name: {DISTRIBUTION}\n" in metadata
    assert "Requires-Python: >=3.10\n" in metadata
    assert "Provides-Extra: service\n" in metadata
    assert "Apache License" in wheel.read(files["LICENSE"]).decode()
    assert "pai-sdk = pai_sdk.cli:main" in wheel.read(files["entry_points.txt"]).decode()


def _installed() -> dict[str, set[str]]:
    """Module to the distributions that bring it (`packages_distributions` misses most of them on Python 3.10)."""
    found: dict[str, set[str]] = {}
    for distribution in distributions():
        # Not `distribution.files`, which takes ten seconds to make a path object of each.
        for file, *_ in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
            if file.endswith((".py", ".so")):
                top = file.partition("/")[0].partition(".")[0]
                found.setdefault(top, set()).add(distribution.metadata["Name"])
    return found


@pytest.mark.slow
def test_everything_imported_is_declared() -> None:
    declared = {_distribution(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in requires(DISTRIBUTION) or ()}
    where = _installed()
    undeclared = {
        name: path.relative_to(ROOT).as_posix()
        for path in (ROOT / "pai_sdk").rglob("*.py")
        if path.with_name("__init__.py").exists()  # or else it is code of a job, which installs what it imports
        for name in _imported(path) - set(sys.stdlib_module_names) - {"pai_sdk"}
        if declared.isdisjoint(map(_distribution, [*where.get(name, ()), COMES_WITH.get(name, "")]))
    }
    assert undeclared == {}


def test_what_users_have_installed_may_be_newer() -> None:
    """A version that is pinned or has an upper bound shuts out the next release of its maintainers.

    Of uvicorn the service uses internals, so each new release is tested before it is allowed.
    """
    bounded = [line for line in requires(DISTRIBUTION) or () if re.search("==|<|~=|!=", line.partition(";")[0])]
    assert {re.split("[<>=!~]", line)[0] for line in bounded} == {"uvicorn"}


def test_what_runs_on_every_python_is_there() -> None:
    """A mark that was lost would be missed only when another Python has failed elsewhere."""
    modules = {path.relative_to(ROOT / "tests"): path for path in (ROOT / "tests").rglob("test_*.py")}
    marked = {
        name for name, path in modules.items() if "pytest.mark.interpreter" in path.read_text(encoding="utf-8")
    }
    complete = ("unit/core", "unit/client/display", "unit/data/trace")
    assert [name for name in modules if str(name).startswith(complete) and name not in marked] == []
    assert len(marked) >= 67
    # The suites that tox reads: a mark in another one would select nothing.
    assert {name.parts[0] for name in marked} == {"unit", "service"}
    assert '"-m", "interpreter", "tests/unit", "tests/service",' in (ROOT / "pyproject.toml").read_text(
        encoding="utf-8"
    )


def test_the_command_starts() -> None:
    (command,) = entry_points(group="console_scripts", name="pai-sdk")
    assert callable(command.load())
    done = _run(str(Path(sys.executable).with_name("pai-sdk")), "--help")
    assert "Usage" in done.stdout


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import pai_sdk", (*HEAVY, *NOT_EVEN)),
        ("from pai_sdk import Estimator, Processor, Session, TrainingJob", HEAVY),
        ("from pai_sdk import *", HEAVY),
    ],
)
def test_an_import_leaves_the_process_as_it_was(statement: str, absent: Sequence[str]) -> None:
    done = _run(sys.executable, "-W", "error", "-c", OBSERVER.format(statement=statement))
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    assert set(absent) & set(seen.pop("modules")) == set()
    assert seen == {
        "handlers": [],
        "our handlers": [],
        "levels": [30, 0],
        "warning filters changed": False,
        "hooks changed": False,
        "threads": 1,
    }


def test_every_public_name_is_there() -> None:
    done = _run(
        sys.executable,
        "-W",
        "error",
        "-c",
        "import pai_sdk; print(*[n for n in pai_sdk.__all__ if not getattr(pai_sdk, n)])",
    )
    assert done.stdout.split() == []


def _distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done


# A name of ours as pip takes it from an index; a path or the name of a file is none.
_FROM_INDEX = re.compile(
    r"(?<![\w./\\-])pai[-_.](?:training[-_.])?sdk(?![\w-]|\S*\.whl| demo)(?:\[|[<>=!~]=|\s*@|\b)", re.I
)
_INSTALLS = re.compile(
    r"\b(?:pip[\d.]*|pipx|uv|uvx|conda|mamba|poetry|pdm|easy_install)\b[^\n`]*?\b(?:install|add|wheel|download|run)\b"
    r"(?P<words>(?:\\\r?\n|[^\n`#|;&(])*)"
)
# Where no command is beside it: as a requirement, with extras or a version.
_REQUIRED = re.compile(
    r"(?<![\w./\\}-])pai[-_.](?:training[-_.])?sdk(?:\[[a-z, ]+\]|\s*(?:==|>=|~=)\s*[\w\$\{])(?!\S*\.whl)", re.I
)
_OWN_EXTRAS = re.compile(r"^(?:\w+ = \[)?\s*\"pai-training-sdk\[[a-z,]+\]\"[,\]].*$", re.MULTILINE)


def _from_index(text: str) -> list[str]:
    """Returns the places of a text that install this package from an index, by its name."""
    commands = [match[0] for match in _INSTALLS.finditer(text) if _FROM_INDEX.search(match["words"])]
    return [*commands, *_REQUIRED.findall(text)]


def test_nothing_installs_the_package_from_an_index_by_its_name() -> None:
    """The name `pai-sdk` on PyPI is somebody else's, and anybody may take that of the distribution."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    names = listed.stdout.decode().split("\0") if listed.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or [
        path for path in ROOT.rglob("*") if ".venv" not in path.parts
    ]
    found = {}
    for path in paths:
        if path == Path(__file__) or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", errors="ignore")
        if path == ROOT / "pyproject.toml":  # extras that name other extras of the package
            text = _OWN_EXTRAS.sub("", text)
        if places := _from_index(text):
            found[path.relative_to(ROOT).as_posix()] = places
    assert found == {}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("pip install pai-sdk", True),
        ("run: pip install 'pai-sdk[odps]'", True),
        ("python -m pip install -U pai_training_sdk", True),
        ("RUN pip install --no-cache-dir \\\n    numpy \"pai-sdk[service,postgres]==${PAI_SDK_VERSION}\"", True),
        ("uv add pai-training-sdk", True),
        ("requirements=['pai-sdk>=0.1']", True),
        ("pai_sdk[service]", True),
        ("%pip install -q pai-sdk", True),
        ("pip install -e './pai_sdk[odps]'", False),
        ('pip install "/shared/me/pai_sdk[service]"', False),
        ('pip install "/opt/pai_training_sdk-${PAI_SDK_VERSION}-py3-none-any.whl[service]"', False),
        ("pip install pai_training_sdk-0.1.0-py3-none-any.whl", False),
        ('Run `pip install ".[service]"`, then `pai-sdk demo`', False),
        ("pip install . && pai-sdk demo", False),
        ("import pai_sdk", False),
    ],
)  # fmt: skip
def test_what_installs_from_an_index(text: str, is_found: bool) -> None:
    assert bool(_from_index(text)) is is_found
