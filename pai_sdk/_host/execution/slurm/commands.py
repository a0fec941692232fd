"""Runs Slurm commands, each with a timeout and without the variables of the service."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from pai_sdk.errors import PaiError

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo")
_TIMEOUT_S = 20.0
_MAX_OUTPUT_BYTES = 64 << 20
_PASSED_VARIABLES = ("HOME", "LOGNAME", "PATH", "SLURM_CONF", "USER")
# Errors after which it is unknown whether the command was carried out: the caller retries.
_UNAVAILABLE_MESSAGES = (
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
    """Raised when Slurm does not respond, so that the effect of a command is unknown."""


class SlurmRefused(PaiError):
    """Raised when Slurm has responded and refused a command."""


def missing_commands() -> list[str]:
    """Returns the Slurm commands that are not installed on this machine."""
    return [name for name in COMMANDS if shutil.which(name) is None]


def run(command: Sequence[str], *, stdin: str = "") -> str:
    """Runs a Slurm command and returns its output; after SlurmAway, it may have been carried out."""
    environment = {name: value for name in _PASSED_VARIABLES if (value := os.environ.get(name))}
    try:
        # Every user of the machine can read the command, so it must contain no secret; `stdin` is private.
        done = subprocess.run(
            command,
            input=stdin.encode(),
            capture_output=True,
            # The messages above are compared in English.
            env={**environment, "LC_ALL": "C"},
            cwd="/",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        # The command is killed, but Slurm may still carry it out.
        raise SlurmAway(f"{command[0]} did not finish within {_TIMEOUT_S:g} seconds") from error
    except OSError as error:
        raise SlurmAway(f"{command[0]} cannot be started: {error}") from error
    if done.returncode != 0:
        stderr = " ".join(done.stderr.decode(errors="replace").split())[-1000:]
        stderr = stderr.replace(f"{command[0]}: error: ", "")
        problem = f"{command[0]}: {stderr or f'exit code {done.returncode}'}"
        if done.returncode < 0 or any(part in stderr for part in _UNAVAILABLE_MESSAGES):
            raise SlurmAway(problem)
        raise SlurmRefused(problem)
    return done.stdout[:_MAX_OUTPUT_BYTES].decode(errors="replace")
