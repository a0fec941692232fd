"""The commands of Slurm: each ends within a limited time, and has none of the service's variables."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from pai_sdk.errors import PaiError

__all__ = ["COMMANDS", "SlurmAway", "SlurmRefused", "missing_commands", "run"]

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo")
_TIMEOUT_S = 20.0
_MOST_OUTPUT_BYTES = 64 << 20
_HANDED_ON = ("HOME", "LOGNAME", "PATH", "SLURM_CONF", "USER")
# What Slurm says when it cannot know whether it would do as asked: it is tried again.
_AWAY = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "communication connection failure",
    "Communication connection failure",
    "Zero Bytes were transmitted or received",
    "Transport endpoint is not connected",
    "Unable to establish controller machine",
    "Unable to establish configuration source",
    "Could not establish a configuration source",
    "in standby mode",
    "Resource temporarily unavailable",
    "Protocol authentication error",
    "Munge",
    "munge",
    "slurm_load_jobs error",
    "currently unable to process",
    "try again",
)


class SlurmAway(PaiError):
    """Slurm does not respond. Whether it has done what it was asked is not known."""


class SlurmRefused(PaiError):
    """Slurm has responded, and does not do it."""


def missing_commands() -> list[str]:
    """The commands that are not on this machine."""
    return [name for name in COMMANDS if shutil.which(name) is None]


def run(command: Sequence[str], *, text: str = "") -> str:
    """Run a command of Slurm; returns what it printed.

    Args:
        command: its name and arguments, without secrets: every user of the machine can read them.
        text: its standard input.

    Raises:
        SlurmAway: it cannot be said whether it has worked.
        SlurmRefused: it has not worked.
    """
    environment = {name: value for name in _HANDED_ON if (value := os.environ.get(name))}
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            capture_output=True,
            env={**environment, "LC_ALL": "C"},
            cwd="/",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SlurmAway(f"{command[0]} did not end within {_TIMEOUT_S:g} seconds") from error
    except OSError as error:
        raise SlurmAway(f"{command[0]} cannot be started: {error}") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())[-1000:]
        said = said.replace(f"{command[0]}: error: ", "")
        problem = f"{command[0]}: {said or f'exit code {done.returncode}'}"
        if done.returncode < 0 or any(part in said for part in _AWAY):
            raise SlurmAway(problem)
        raise SlurmRefused(problem)
    return done.stdout[:_MOST_OUTPUT_BYTES].decode(errors="replace")
