"""Programs that a test writes, to be found and run by what it tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.waiting import PATIENCE_S

__all__ = ["write_program"]


def write_program(path: Path, text: str) -> None:
    """Write a program that can be run at once.

    Another process writes it: were the file open here, whatever another thread starts at this moment would hold it
    open for a little longer, and the kernel runs no file that somebody may still write ("text file busy").
    """
    command = ["sh", "-c", 'cat >"$0" && chmod 755 "$0"', str(path)]
    subprocess.run(command, input=text, text=True, timeout=PATIENCE_S, check=True)
