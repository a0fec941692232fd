"""Whether jobs that run as processes have the real /ml here; where not, their logs begin with a notice."""

from __future__ import annotations

import os
import subprocess
from functools import cache

NOTICE = "[pai-sdk] /ml is not available on this machine ("


@cache
def can_be_had() -> bool:
    """Whether the kernel lets us mount; `unshare` is asked, so that our own code is not its own witness.

    Refused for instance to everybody but root under chroot, and in containers that forbid user namespaces.
    """
    ways = [["--mount"], ["--user", "--mount"]] if os.geteuid() == 0 else [["--user", "--mount"]]
    commands = [["unshare", *way, "--propagation", "unchanged", "true"] for way in ways]
    return any(subprocess.run(command, capture_output=True).returncode == 0 for command in commands)


def split_notice(log: str) -> tuple[str, str]:
    """The notice with its newline, or an empty text; and the rest of the log."""
    if not log.startswith(NOTICE):
        return "", log
    notice, newline, rest = log.partition("\n")
    return notice + newline, rest
