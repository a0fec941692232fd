"""The first thing that runs inside an instance, whatever started it: a shell that turns into the user's command.

The shell gives the exit codes everybody knows (127: not found, 126: not executable) and writes the reason to the
log. Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["launch_command"]

_SCRIPT = """\
cd "$PAI_WORKING_DIR" || exit 126
exec "$@"
"""


def launch_command(command: Sequence[str]) -> list[str]:
    """The program and arguments that enter the code folder and become `command`, in the contract's environment.

    Example:
        >>> launch_command(["sh", "-c", "python train.py"])[-3:]
        ['sh', '-c', 'python train.py']
    """
    return ["/bin/sh", "-c", _SCRIPT, "launch", *command]
