"""Import paths that users have, wherever the modules behind them lie."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import pai_sdk

# Path that users import, and a name there.
PATHS = [
    ("pai_sdk._data.run.report", "report"),
    ("pai_sdk._data.run.events", "EventWriter"),
    ("pai_sdk._data.run.store", "RunStore"),
    ("pai_sdk._data.storage.oss", "OssClient"),
    ("pai_sdk._data.storage.sync", "DirSync"),
    ("pai_sdk._client.job.follow", "FollowPolicy"),
    ("pai_sdk._client.job.notifications", "Webhook"),
    ("pai_sdk._data.storage.filesystem", "register"),
    ("pai_sdk._data.storage.store", "open_store"),
    ("pai_sdk._data.storage.transfer", "upload"),
    ("pai_sdk._data.storage.uri", "OssUri"),
    ("pai_sdk._core.files", "replace_file"),
]
RE_EXPORTS = sorted(
    path.stem for path in Path(pai_sdk.__file__).parent.glob("run/*.py") if path.stem not in ("__init__",)
)


@pytest.mark.parametrize(("module", "name"), PATHS)
def test_a_path_leads_to_its_names(module: str, name: str) -> None:
    found = import_module(module)
    assert getattr(found, name)
    assert name in found.__all__


@pytest.mark.parametrize("name", RE_EXPORTS)
def test_a_module_of_run_only_re_exports_one_of_a_package(name: str) -> None:
    module = import_module(f"pai_sdk._data.run.{name}")
    (line,) = (module.__doc__ or "").splitlines()
    behind = import_module(line.split("`")[1])
    assert module.__all__ == behind.__all__
    assert all(getattr(module, each) is getattr(behind, each) for each in behind.__all__)
    assert behind.__name__.startswith("pai_sdk._data.run.")


def test_run_has_the_paths_that_users_had_before_its_packages() -> None:
    assert set(RE_EXPORTS) >= {
        *("binary_columns", "buckets", "callbacks", "checkpoints", "event_data", "function", "function_runner"),
        *("manager", "preemption", "series", "stored_checkpoints", "summary_watcher", "watched_run"),
    }


@pytest.mark.parametrize("package", ["pai_sdk._data.run.store", "pai_sdk._data.storage.oss"])
def test_an_unknown_name_of_a_package_is_an_error(package: str) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        import_module(package).no_such_name  # noqa: B018
