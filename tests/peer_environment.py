"""Other people's packages, each set in an environment of its own: they may need other releases than ours."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

__all__ = ["python_with"]


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
    python = folder / "bin" / "python"
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test workers may want it at once
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(python), "-m", "pip", "install", "-qq", "--no-input", "--disable-pip-version-check"]
            done = subprocess.run([*pip, *requirements], capture_output=True, text=True, timeout=900, check=False)
            if done.returncode:
                raise RuntimeError(f"pip could not install {', '.join(requirements)}:\n{done.stderr[-2000:]}")
            (folder / "ready").touch()
    return python
