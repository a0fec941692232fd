"""A program `nvidia-smi` for machines without GPUs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest


class FakeNvidiaSmi:
    """Two GPUs of 1000 MiB; processes have the first one, and no job has the other one."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        """Put it on PATH."""
        self._pids, self._use = folder / "pids", folder / "use"
        self.set_processes()
        self.set_use("0", "0")
        program = folder / "nvidia-smi"
        program.write_text(
            "#!/bin/sh\n"
            'case "$1" in\n'
            f"  --query-compute-apps=pid,gpu_uuid) cat {self._pids}; echo '[N/A], GPU-2' ;;\n"
            f"  --query-gpu=uuid,utilization.gpu,memory.used,memory.total) cat {self._use} ;;\n"
            "esac\n"
        )
        program.chmod(0o755)
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def set_processes(self, *pids: int) -> None:
        """Have these processes use the first GPU."""
        _replace(self._pids, "".join(f"{pid}, GPU-1\n" for pid in pids))

    def set_use(self, percent: str, used_mib: str) -> None:
        """Set what the driver says about the first GPU."""
        _replace(self._use, f"GPU-1, {percent}, {used_mib}, 1000\nGPU-2, 99, 990, 1000\n")


def pid_of(instance: str) -> int:
    """A process of an instance of a job on this machine; 0 while it has none."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PAI_INSTANCE_NAME") == instance:
                return int(process.pid)
    return 0


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
