"""A client's whole way, in a process that looks like one on Windows. Run by `test_windows_client`."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

from tests.like_windows import become_windows

# Parts that do not run on Windows; all others are imported.
_NOT_THERE = ("pai_sdk.backend.local", "pai_sdk.execution", "pai_sdk.service")
_COMMAND = 'test "$PAI_USER_ARGS" = \'--lr 0.1\' && python make.py && cat "$PAI_INPUT_TRAIN"'


def main(info: dict[str, str]) -> dict[str, Any]:
    """Submit to a service that runs, fetch what the job left, and try what there is not on Windows."""
    from pai_sdk import Estimator, Session
    from pai_sdk.config_file import write_config
    from pai_sdk.errors import LocalRunError, PaiError, ServiceStartError

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
    planned = str(estimator.plan({"train": "data.csv"}))
    job = estimator.fit({"train": "data.csv"}, wait=False)
    job.wait(show_logs=False)
    left = job.download("model", "model")
    again = job.download("model", "model")
    return {
        "planned": "code" in planned,
        "status": str(job.status),
        "log": [line.text for line in job.logs()],
        "same": again == left,
        "refused": {
            "embedded": _refusal(Session.embedded, ServiceStartError),
            "serve": _refusal(lambda: importlib.import_module("pai_sdk.service.server"), PaiError),
            "local": _refusal(lambda: session.local, LocalRunError),
        },
    }


def _refusal(do: Any, kind: type[Exception]) -> str:
    try:
        do()
    except kind as error:
        return str(error)
    return ""


def import_all() -> list[str]:
    """Import every module that is for all systems; their names."""
    import pai_sdk

    names = [
        each.name
        for each in pkgutil.walk_packages(pai_sdk.__path__, "pai_sdk.", onerror=lambda name: None)
        if not f"{each.name}.".startswith(tuple(f"{name}." for name in _NOT_THERE))
    ]
    for name in names:
        importlib.import_module(name)
    return names


if __name__ == "__main__":
    become_windows()
    found = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    found["modules"] = import_all()
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
