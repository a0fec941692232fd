"""Starts the supervisor of a job on the host that runs it, and adds what the job needs of that host.

The description of a job, from `execution.contract.job_description`, is the same everywhere; `job_on_host` adds the
Python, the variables and the folders of this host, for the `job.json` of the supervisor. Standard library only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pai_sdk._host.agent.interpreter import find_requirements, has_pip, layer, service_paths, site_packages
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.processes import kill_group, session_leaders
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.supervisor_template import SupervisorTemplate
from pai_sdk.errors import InvalidInputError, PaiError, Problem

# The variables of this process that a job gets; all others, such as keys, stay here.
_INHERITED = re.compile(
    r"HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|(CUDA|NVIDIA|PIP)_\w+"
    r"|(HIP|ROCR)_VISIBLE_DEVICES|ONEAPI_DEVICE_SELECTOR|ZE_AFFINITY_MASK"
    r"|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|((https?|no|all)_proxy|(HTTPS?|NO|ALL)_PROXY)"
)
# What an instance that was given no GPUs of its host sees of them, by the libraries of NVIDIA and AMD: none.
_NO_GPUS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# With -I and -S the supervisor starts fast, and no variable or file of the environment changes its Python.
_SUPERVISE = (
    "import sys; from pathlib import Path; sys.path.append(sys.argv[1]); "
    "from pai_sdk._host.agent.supervisor import main; sys.exit(main(Path(sys.argv[2]), *map(int, sys.argv[3:])))"
)
# The same program in the command lines of supervisors that earlier releases have started and that still run.
_FORMER_SUPERVISE = _SUPERVISE.replace("pai_sdk._host.", "pai_sdk.")


def job_on_host(sandbox: Sandbox, job: Mapping[str, Any], *, cache_dir: Path) -> dict[str, Any]:
    """Returns the `job.json` of a supervisor on this host, from `execution.contract.job_description`."""
    requirements = find_requirements(
        sandbox.usercode, job["python_requirements"], state_dir=sandbox.state_dir, cache_dir=cache_dir
    )
    python = sandbox.state_dir / "python"
    shared = [site_packages(requirements.environment)] if requirements else []
    layer(python, [*shared, *service_paths()], has_pip=has_pip())
    programs = [python, Path(requirements.environment)] if requirements else [python]
    needed: list[str | Path] = [sandbox.root, cache_dir, sys.prefix, sys.base_prefix, *service_paths()]
    for mount in job.get("mounts", ()):
        if hidden := next((str(path) for path in needed if Path(path).is_relative_to(mount["path"])), ""):
            message = f"hides {hidden}, which jobs on this host need"
            raise InvalidInputError([Problem(f"mounts[{mount['path']!r}]", message, "use another path")])
    return {
        **{name: value for name, value in job.items() if name != "python_requirements"},
        "instances": [
            # With `hides_gpus`, instances see no GPUs, even if the variables of this process name some.
            _with_variables(instance, sandbox, programs, _NO_GPUS if job.get("hides_gpus") else {})
            for instance in job["instances"]
        ],
        "requirements": asdict(requirements) if requirements else None,
        "hidden_by_ml": hidden_by_ml(needed),
    }


def instance_job(job: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Returns the description of one instance of a job, for a supervisor that has no other one."""
    content = job["instances"][rank]
    # Its supervisor runs it to its end. What that means for the job is decided where all instances are known.
    instance = {**content["instance"], "is_awaited": True, "can_fail_job": True}
    return {**job, "instances": [{**content, "instance": instance, "waits_for": []}]}


def hidden_by_ml(needed: Iterable[str | Path]) -> str:
    """Returns the first of these folders that lies in the host's own `/ml`, or an empty string."""
    # Within a job of PAI this happens: a job with its own `/ml` would not find its Python there.
    return next((str(folder) for folder in needed if Path(folder).is_relative_to("/ml")), "")


def start_supervisor(
    root: Path,
    *,
    package: Path,
    timeout_s: float,
    lifeline: int | None = None,
    program: str = _SUPERVISE,
    template: SupervisorTemplate | None = None,
) -> None:
    """Starts the supervisor of a job, and returns when it runs."""
    journal = Journal(Sandbox(root).state_dir)
    inherited = () if lifeline is None else (lifeline,)
    arguments = [sys.executable, "-I", "-S", "-c", program, str(package), str(root), *map(str, inherited)]
    with journal.log.open("ab") as log:
        # Started again if in doubt: of two supervisors of a job, the second one finds the state of the first.
        if template is not None and lifeline is None and template.start(arguments, log.fileno()):
            return
        result = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            # The supervisor closes stdout when it has started, so no polling is needed.
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            env={"PATH": _DEFAULT_PATH},
            start_new_session=True,
            pass_fds=inherited,
            timeout=timeout_s,
            check=False,
        )
    if result.returncode != 0:
        tail = journal.log.read_text(errors="replace")[-2000:]
        raise PaiError(f"the job's supervisor did not start (exit code {result.returncode}):\n{tail}")


def kill_supervisors(should_kill: Callable[[Path, Path], bool]) -> list[str]:
    """Kills supervisors of jobs, whose guardians then kill all processes; returns the folders' names."""
    jobs = set()
    # Guardian and supervisor have one command line, but only the supervisor leads a session.
    for process, arguments in session_leaders(_SUPERVISE, _FORMER_SUPERVISE):
        program = _SUPERVISE if _SUPERVISE in arguments else _FORMER_SUPERVISE
        folder = Path(arguments[arguments.index(program) + 2])
        # Called with the supervisor's folder in /proc, and the job's folder.
        if should_kill(process, folder):
            # The guardian is in a group of its own, and cleans up.
            kill_group(int(process.name))
            jobs.add(folder.name)
    return sorted(jobs)


def _with_variables(
    instance: Mapping[str, Any], sandbox: Sandbox, programs: list[Path], host_variables: Mapping[str, str]
) -> dict[str, Any]:
    """Returns an instance with its variables for both layouts: with its own `/ml`, and without."""
    base = {
        **{name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)},
        **host_variables,
        "PATH": os.environ.get("PATH", _DEFAULT_PATH),
        "VIRTUAL_ENV": str(programs[0]),
        "PYTHONUNBUFFERED": "1",
    }
    # Packages and Python of the job come first, whatever PATH the user sets.
    first = [*(str(folder / "bin") for folder in programs), str(Path(sys.executable).parent)]

    def variables(ml: str) -> dict[str, str]:
        paths = {name: f"{ml}/{path}" for name, path in instance["paths"].items()}
        merged = {**base, **instance["variables"], **paths}
        return {**merged, "PATH": os.pathsep.join([*first, merged["PATH"]])}

    return {
        **{name: value for name, value in instance.items() if name not in ("variables", "paths")},
        "environments": {"mounted": variables("/ml"), "plain": variables(str(sandbox.ml))},
    }
