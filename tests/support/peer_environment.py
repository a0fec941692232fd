"""Other people's packages, each set in an environment of its own: they may need other releases than ours."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["python_with"]

_ATTEMPTS = 3  # pip gives up a download that stalls midway; what arrived whole is in its cache then
_LONGEST_S = 600
_PIP = ["-m", "pip", "install", "-qq", "--no-input", "--disable-pip-version-check", "--retries=5", "--timeout=60"]


def python_with(*requirements: str, cache: Path | None = None) -> Path:
    """The interpreter of an environment that has these packages and nothing of ours; made once, then kept.

    Args:
        requirements: as pip takes them; give exact releases, so that every run meets the same ones.
        cache: where environments are kept; `~/.cache/pai-sdk-tests` otherwise.

    Raises:
        RuntimeError: pip could not install them; the message ends with what it said.
    """
    cache = cache or Path.home() / ".cache" / "pai-sdk-tests"
    cache.mkdir(parents=True, exist_ok=True)
    named = "\n".join([sys.version, *sorted(requirements)])
    folder = cache / hashlib.sha256(named.encode()).hexdigest()[:16]
    # One at a time: several test workers may want the same, and pip's cache of built wheels bears one writer.
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _make(folder, requirements, lock.fileno())
            (folder / "ready").touch()
    return folder / "bin" / "python"


def _make(folder: Path, requirements: Sequence[str], lock: int) -> None:
    """Install the packages. A pip that outlives us holds the lock: nobody clears the folder it writes to."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, pass_fds=[lock])
    command = [str(folder / "bin" / "python"), *_PIP, *requirements]
    for _ in range(_ATTEMPTS):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LONGEST_S, check=False, pass_fds=[lock]
            )
        except subprocess.TimeoutExpired:
            said = f"it did not finish within {_LONGEST_S} s"
            continue
        if done.returncode == 0:
            return
        said = done.stderr[-2000:]
    raise RuntimeError(f"pip could not install {', '.join(requirements)}:\n{said}")
