"""A client's whole way, from its import to its download. Run by `test_portable_client`; `--windows` as there."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.like_windows import become_windows

_NOT_ON_WINDOWS = (
    "pai_sdk._host.agent",
    "pai_sdk._client.backend.local",
    "pai_sdk._host.execution",
    "pai_sdk._service",
)
_PROGRAMS = ("pai_sdk.__main__", "pai_sdk._service.__main__")  # which run when they are imported
_LARGE = "ray"  # an extra of its own, which the tests on other Pythons do without
_COMMAND = 'test "$PAI_USER_ARGS" = \'--lr 0.1\' && python make.py && cat "$PAI_INPUT_TRAIN"'


def main(info: dict[str, str]) -> dict[str, Any]:
    """Submit to a service that runs, fetch what the job left, and try what there is not on Windows."""
    from pai_sdk import Estimator, Session
    from pai_sdk._core.config.file import write_config

    write_config(Path("config.json"), {"region_id": info["region_id"]})
    session = Session(
        info["region_id"],
        info["workspace_id"],
        oss_bucket_name=info["bucket"],
        oss_endpoint=info["oss_endpoint"],
        endpoint=info["endpoint"],
        aiworkspace_endpoint=info["endpoint"],
        access_key_id=info["access_key_id"],
        access_key_secret=info["access_key_secret"],
    )
    estimator = Estimator(
        "python:3.11",
        _COMMAND,
        source_dir="code",
        hyperparameters={"lr": 0.1},
        instance_type="ecs.c6.large",
        session=session,
    )
    plan = estimator.plan({"train": "data.csv"})
    job = estimator.fit({"train": "data.csv"}, wait=False)
    job.wait(show_logs=False)
    left = job.download("model", "model")
    return {
        "planned": str(plan),
        "status": str(job.status),
        "log": [line.text for line in job.logs()],
        "is_complete": job.download("model", "model") == left,
    }


def refusals() -> dict[str, str]:
    """What is said on Windows of the parts that do not run there."""
    from pai_sdk import Session
    from pai_sdk.errors import LocalRunError, ServiceStartError

    session = Session("local")
    return {
        "embedded": _refusal(Session.embedded, ServiceStartError),
        "serve": _refusal(lambda: importlib.import_module("pai_sdk._service.server"), ServiceStartError),
        "local": _refusal(lambda: session.local, LocalRunError),
    }


def _refusal(do: Callable[[], Any], kind: type[Exception]) -> str:
    try:
        do()
    except kind as error:
        return str(error)
    return ""


def import_all(without: tuple[str, ...]) -> list[str]:
    """Import every module of pai_sdk but some packages, and those that need Ray where it is not installed."""
    import pai_sdk

    names = [
        name
        for _, name, _ in pkgutil.walk_packages(pai_sdk.__path__, "pai_sdk.", onerror=lambda package: None)
        if not f"{name}.".startswith(tuple(f"{package}." for package in (*without, *_PROGRAMS)))
    ]
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != _LARGE or find_spec(_LARGE) is not None:
                raise
    return names


if __name__ == "__main__":
    is_windows = sys.argv[1:] == ["--windows"]
    if is_windows:
        become_windows()
    found = main(json.loads(Path("info.json").read_text(encoding="utf-8")))
    found["modules"] = import_all(_NOT_ON_WINDOWS if is_windows else ())
    found["refusals"] = refusals() if is_windows else {}
    Path("found.json").write_text(json.dumps(found), encoding="utf-8")
