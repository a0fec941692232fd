"""Runs scripts that call `dlc`, which is a program that calls `pai-sdk dlc`: the one word that changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "e2e" / "dlc_scripts"


class RunScript(Protocol):
    """Runs a script of the folder; `python` is another interpreter for a program."""

    def __call__(
        self, script: str, *arguments: str, python: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]: ...


def script_runner(folder: Path, home: Path, endpoint: str, access_id: str, access_key: str) -> RunScript:
    """Returns what runs scripts in a folder, with a service and a key in the config file of a home."""
    programs = folder / "bin"
    programs.mkdir()
    for name, first in (("dlc", "dlc "), ("pai-sdk", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m pai_sdk {first}"$@"\n')
        (programs / name).chmod(0o755)
    config = home / ".dlc" / "config"
    config.parent.mkdir()
    address = endpoint.removeprefix("http://")
    config.write_text(f"access_id={access_id}\naccess_key={access_key}\nprotocol=http\nendpoint={address}\n")

    def run(
        script: str, *arguments: str, python: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        path = SCRIPTS / script
        program = ["bash", str(path)] if path.suffix == ".sh" else [str(python or sys.executable), str(path)]
        environ = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": "" if python else str(ROOT),
            "DLC_ENDPOINT": address,
            "DLC_ACCESS_ID": access_id,
            "DLC_ACCESS_KEY": access_key,
            **variables,
        }
        command = [*program, *arguments]
        return subprocess.run(
            command, env=environ, cwd=folder, capture_output=True, text=True, timeout=600, check=False
        )

    return run
