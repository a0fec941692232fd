"""Imports every module of the package, and starts the command: `python tests/ci/import_all.py`."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pai_sdk

NEED_MORE = ("pai_sdk.cli.demo_code", "pai_sdk._host.execution.ray", "pai_sdk.callbacks")

failed = {}
for module in pkgutil.walk_packages(pai_sdk.__path__, "pai_sdk."):
    if module.name.startswith(NEED_MORE) or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except Exception as error:
        failed[module.name] = repr(error)
for name, why in failed.items():
    print(f"{name}: {why}", file=sys.stderr)
subprocess.run(
    [Path(sys.executable).with_name("pai-sdk"), "serve", "--help"], check=True, stdout=subprocess.DEVNULL
)
sys.exit(bool(failed))
