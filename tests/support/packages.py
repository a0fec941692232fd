"""Packages of Debian that tests need beside Python's, installed as root."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["install_packages"]

_APT = ("apt-get", "-qq", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300")


def install_packages(*packages: str, programs: Sequence[str] = ()) -> None:
    """Install packages, unless their programs are there.

    Raises:
        subprocess.CalledProcessError: they cannot be installed.
    """
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Suites run at the same time, and `apt-get update` fails while another one runs, whatever its options.
    with Path("/tmp/pai-sdk-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if programs and all(map(shutil.which, programs)):
            return
        subprocess.run([*_APT, "update"], check=True, env=environment, stdout=subprocess.DEVNULL)
        install = [*_APT, "install", "-y", "--no-install-recommends", *packages]
        subprocess.run(install, check=True, env=environment, stdout=subprocess.DEVNULL)
