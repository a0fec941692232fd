"""Starts Python processes that continue when this process and its terminal are gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# The package is imported from where this process found it, with the lowest precedence in sys.path.
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from {} import main; sys.exit(main())"


def start_detached(
    module: str,
    arguments: Sequence[str] = (),
    *,
    log: Path,
    content: bytes = b"",
    cwd: str | Path = "/",
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Runs `main()` of a module; `content` is its standard input, and its output is appended to the log."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(module), str(Path(__file__).resolve().parents[2]), *arguments],
            # By default not the current folder, which may be unmounted or deleted while the process runs.
            cwd=cwd,
            env=environment,
            # Secrets are sent here: arguments and variables of a process can be read by others.
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            # Ctrl-C in the terminal does not reach it.
            start_new_session=True,
        )
    # It may exit before this process: without wait() it would stay a zombie.
    threading.Thread(target=process.wait, name=f"pai-reaper-{process.pid}", daemon=True).start()
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    # It may have exited before it read anything; the reason is in its log.
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(content)
    return process
