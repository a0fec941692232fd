"""What every test starts from: a HOME of its own and an environment without anybody's settings."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tqdm import tqdm

from tests.support.messages import GOLDEN, start_update, write_golden

pytest.register_assert_rewrite(
    "tests.unit.host.execution.conformance", "tests.unit.data.storage.stores.store_conformance"
)

_FOREIGN_PREFIXES = ("PAI_", "ALIBABA_CLOUD_", "ALIBABACLOUD_", "OSS_", "DSW_", "DLC_", "DOCKER_")
_PROXIES = tuple(f"{kind}_proxy" for kind in ("http", "https", "all", "no"))
# With these, and in some places where CI runs, Rich writes in colours or in other widths.
_DISPLAY = ("FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES", "GITHUB_ACTIONS")
_FOREIGN_NAMES = ("REGION", "dsw_region", *_PROXIES, *map(str.upper, _PROXIES), *_DISPLAY)

# Tests that were started in the background ignore it, and so would the programs whose Ctrl-C is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in each run, and none that is called too slow on a busy machine. To look for new ones:
# `--hypothesis-profile=search`, with `--hypothesis-seed=N` to see them again.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("search", _PATIENT)
settings.register_profile("same", _PATIENT, derandomize=True, database=None)
settings.load_profile("same")

# Its monitor wakes every ten seconds, and warns of a bar that is made at this very moment: an error for some test.
tqdm.monitor_interval = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help=f"write the messages of errors to {GOLDEN.name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.update_golden:
        if config.getoption("numprocesses", None):
            raise pytest.UsageError("--update-golden needs one process: leave out -n")
        start_update()


def pytest_sessionfinish() -> None:
    write_golden()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keeps modules and collected tests from the garbage collector, which would pass over them again and again."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Reads for `-m interpreter` only modules with this marker: importing all takes longer than the tests."""
    if config.option.markexpr != "interpreter" or collection_path.suffix != ".py":
        return None
    return None if "pytest.mark.interpreter" in collection_path.read_text() else True


@pytest.fixture(autouse=True)
def same_interrupt_handler() -> Iterator[None]:
    """Ctrl-C raises again after a test: a command that ends ignores it for the rest of its process, here ours."""
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def same_default_session() -> Iterator[None]:
    """A default session that a test sets up is not the default session of the next test."""
    before = _default_session()
    yield
    if _default_session() is not before:
        sys.modules["pai_sdk._client.session.default"]._default = before  # type: ignore[attr-defined]


def _default_session() -> object:
    module = sys.modules.get("pai_sdk._client.session.default")  # many tests never load it
    return None if module is None else module._default


@pytest.fixture(autouse=True)
def clean_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty HOME, no settings in the environment, and no search for keys on the network."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(_FOREIGN_PREFIXES) or name in _FOREIGN_NAMES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")
    return home
