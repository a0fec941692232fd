"""Jobs as plain processes of this machine, with the real `/ml` where the kernel allows it.

The executor starts a supervisor (`agent.supervisor`) and then only reads and writes the files of the `Journal`. It
holds the journal's lock in `withdraw` only; while a job runs, its supervisor and guardian hold it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pai_sdk.agent.interpreter import find_requirements, has_pip, layer, service_paths, site_packages
from pai_sdk.agent.journal import Journal
from pai_sdk.agent.processes import kill_group, kill_orphans, session_leaders
from pai_sdk.agent.reasons import REASON_SUPERVISOR_LOST
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.errors import PaiError
from pai_sdk.execution import contract
from pai_sdk.execution.base import (
    Environment,
    ExecutionState,
    Executor,
    ExecutorCapabilities,
    ExecutorSetup,
    LaunchSpec,
)
from pai_sdk.execution.job_folder import JobFolder
from pai_sdk.schemas.request import TrainingJobRequest

__all__ = ["ProcessExecutor", "hidden_by_ml"]

# The variables of this process that a job gets; all others, such as keys, stay here.
_INHERITED = re.compile(
    r"HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|(CUDA|NVIDIA|PIP)_\w+"
    r"|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|((https?|no|all)_proxy|(HTTPS?|NO|ALL)_PROXY)"
)
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_START_TIMEOUT_S = 30.0
# With -I and -S the supervisor starts fast, and no variable or file of the environment changes its Python.
_SUPERVISE = (
    "import sys; from pathlib import Path; sys.path.append(sys.argv[1]); "
    "from pai_sdk.agent.supervisor import main; sys.exit(main(Path(sys.argv[2])))"
)


class ProcessExecutor(Executor):
    """Runs the instances of a job as processes, under a supervisor that does not depend on this process.

    All instances of a job share its sandbox and meet on the loopback address. Python requirements are installed
    into a virtual environment that jobs with the same requirements share; packages of this interpreter count as
    present. The request's image is not used.

    Attributes:
        cache_dir: where those environments are kept.
        grace_s: seconds between SIGTERM and SIGKILL when a job is stopped.

    Example:
        >>> executor = ProcessExecutor(Path("/srv/cache"))
        >>> executor.state(Path("/srv/jobs/none")).phase
        'absent'
    """

    capabilities = ExecutorCapabilities(uses_images=False, hosts="here")

    def __init__(self, cache_dir: Path, *, grace_s: float = 10.0) -> None:
        self.cache_dir = cache_dir
        self.grace_s = grace_s

    @classmethod
    def open(cls, setup: ExecutorSetup) -> ProcessExecutor:
        """The executor of a service."""
        return cls(setup.cache_dir)

    def start(self, spec: LaunchSpec) -> None:
        """Start the supervisor and return as soon as it runs. A job that was started before is left alone.

        Raises:
            InvalidInputError: the request cannot become processes; nothing was started.
            PaiError: the supervisor did not start.
        """
        journal = Journal(spec.sandbox.state_dir)
        if journal.read_state() is not None:
            return
        journal.write_job(self._job(spec))
        _start_supervisor(spec.sandbox.root, journal)

    def withdraw(self, root: Path) -> None:
        """Take back a start that was cut off.

        Raises:
            PaiError: an earlier supervisor is stuck before its start.
        """
        if not Journal(Sandbox(root.resolve()).state_dir).withdraw_job(patience_s=_START_TIMEOUT_S):
            raise PaiError("an earlier supervisor is stuck before its start; see its log")

    def state(self, root: Path) -> ExecutionState:
        """The state now; processes that a killed supervisor has left behind are killed."""
        sandbox = Sandbox(root.resolve())
        state = Journal(sandbox.state_dir).state()
        if state is None:
            return ExecutionState("absent")
        if state.reason_code == REASON_SUPERVISOR_LOST:
            # If the guardian was killed too, processes of the instances may still run, and write.
            for instance in state.instances:
                mark = f"PAI_INSTANCE_NAME={instance.name}"
                kill_orphans(mark, within=str(sandbox.state_dir), ml=sandbox.ml)
        return state

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Ask all instances to end; returns at once. The first reason given stays."""
        journal = Journal(Sandbox(root).state_dir)
        state = journal.state()
        if state is not None and state.phase != "ended":
            journal.request_stop(reason_code, reason_message)

    def files(self, root: Path) -> JobFolder:
        """The files of a job; its instances use its folder."""
        return JobFolder(Sandbox(root))

    def remove(self, root: Path) -> None:
        """Kill what runs of a job, and remove its folder."""
        sandbox = Sandbox(root.resolve())
        self.withdraw(root)
        journal, deadline = Journal(sandbox.state_dir), time.monotonic() + _START_TIMEOUT_S
        while journal.is_locked():
            if time.monotonic() > deadline:
                raise PaiError(f"processes of the job in {root} cannot be killed; see its supervisor.log")
            _kill_supervisors(lambda _, folder: folder == sandbox.root)
            time.sleep(0.01)
        sandbox.remove()

    def sweep(self) -> list[str]:
        """Kill the processes of jobs whose folder has gone; gives their ids."""
        # As the supervisor sees the folder: it may run in a container with a file system of its own.
        return _kill_supervisors(lambda process, folder: not (process / "root" / folder.relative_to("/")).exists())

    def _job(self, spec: LaunchSpec) -> dict[str, Any]:
        """All the supervisor needs to know, as plain JSON."""
        sandbox, request = spec.sandbox, spec.request
        requirements = find_requirements(
            sandbox.usercode,
            request.python_requirements or (),
            state_dir=sandbox.state_dir,
            cache_dir=self.cache_dir.resolve(),
        )
        python = sandbox.state_dir / "python"
        shared = [site_packages(requirements.environment)] if requirements else []
        layer(python, [*shared, *service_paths()], has_pip=has_pip())
        programs = [python, Path(requirements.environment)] if requirements else [python]
        needed: list[str | Path] = [
            sandbox.root,
            self.cache_dir.resolve(),
            sys.prefix,
            sys.base_prefix,
            *service_paths(),
        ]
        return {
            "job_id": spec.job_id,
            "job_type": contract.job_type(request),
            "image": request.algorithm_spec.image if request.algorithm_spec else None,
            "command": list(spec.command),
            "instances": _instances(spec, programs),
            "nproc_per_node": _gpus(request) or 1,
            "memory_limit_bytes": spec.limits.memory_bytes,
            "max_running_s": spec.limits.max_running_s,
            "grace_s": self.grace_s,
            "requirements": asdict(requirements) if requirements else None,
            "hidden_by_ml": hidden_by_ml(needed),
        }


def hidden_by_ml(needed: Iterable[str | Path]) -> str:
    """The first of these folders that lies in the host's own `/ml`, if it has one; else an empty text.

    Within a job of PAI it is so: a job with a `/ml` of its own would not find its Python there.
    """
    return next((str(folder) for folder in needed if Path(folder).is_relative_to("/ml")), "")


def _instances(spec: LaunchSpec, programs: list[Path]) -> list[dict[str, Any]]:
    """Each instance with its variables for both cases: with a `/ml` of its own, and without."""
    base = {
        **{name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)},
        "PATH": os.environ.get("PATH", _DEFAULT_PATH),
        "VIRTUAL_ENV": str(programs[0]),
        "PYTHONUNBUFFERED": "1",
    }
    # What is installed for the job comes first, and its Python, whatever PATH the user gives.
    first = [*(str(folder / "bin") for folder in programs), str(Path(sys.executable).parent)]

    def variables(environment: Environment, ml: str) -> dict[str, str]:
        found = {**base, **environment.at(ml)}
        return {**found, "PATH": os.pathsep.join([*first, found["PATH"]])}

    return [
        {
            "instance": asdict(instance),
            "environments": {
                "mounted": variables(environment, "/ml"),
                "plain": variables(environment, str(spec.sandbox.ml)),
            },
        }
        for instance, environment in zip(spec.instances, spec.environments, strict=True)
    ]


def _gpus(request: TrainingJobRequest) -> int:
    spec = request.compute_resource.instance_spec
    return int(spec.gpu) if spec and spec.gpu and spec.gpu.isdecimal() else 0


def _start_supervisor(root: Path, journal: Journal) -> None:
    package_parent = str(Path(__file__).parents[3])
    with journal.log.open("ab") as log:
        result = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _SUPERVISE, package_parent, str(root)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # closed when it is done: a wait for that needs no polling
            stderr=log,
            cwd="/",
            env={"PATH": _DEFAULT_PATH},
            start_new_session=True,
            timeout=_START_TIMEOUT_S,
            check=False,
        )
    if result.returncode != 0:
        tail = journal.log.read_text(errors="replace")[-2000:]
        raise PaiError(f"the job's supervisor did not start (exit code {result.returncode}):\n{tail}")


def _kill_supervisors(is_wanted: Callable[[Path, Path], bool]) -> list[str]:
    """Kill supervisors of jobs; their guardians then kill all other processes of the job.

    Args:
        is_wanted: given the supervisor's folder in /proc, and the job's folder.

    Returns:
        The jobs, by the names of their folders.
    """
    found = set()
    # Guardian and supervisor have one command line, but only the supervisor leads a session.
    for process, arguments in session_leaders(_SUPERVISE):
        folder = Path(arguments[arguments.index(_SUPERVISE) + 2])
        if is_wanted(process, folder):
            kill_group(int(process.name))
            found.add(folder.name)
    return sorted(found)
