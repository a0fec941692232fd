"""Chromium for tests: one that is installed, or Debian's, which root may install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["chromium", "why_no_browser"]

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_APT = ("apt-get", "-qq", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300")


def why_no_browser() -> str | None:
    """Why no browser can be had on this machine, in one line; None where one can."""
    if _installed() is not None:
        return None
    if sys.platform != "linux" or shutil.which("apt-get") is None:
        return "there is no Chromium, and no apt-get to install Debian's with"
    if os.geteuid() != 0:
        return "there is no Chromium, and only root can install it: apt-get install chromium"
    return None


def chromium() -> Path:
    """The program; installed first if it is missing.

    Raises:
        subprocess.CalledProcessError: it cannot be installed.
    """
    found = _installed()
    if found is None:
        patiently = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run([*_APT, "update"], check=True, env=patiently)
        subprocess.run([*_APT, "install", "-y", "--no-install-recommends", "chromium"], check=True, env=patiently)
        found = _installed()
        assert found is not None, "chromium is installed, and not on PATH"
    return found


def _installed() -> Path | None:
    return next((Path(path) for path in map(shutil.which, _PROGRAMS) if path is not None), None)
