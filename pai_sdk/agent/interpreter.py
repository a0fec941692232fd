"""The Python that a job without an image runs with: the service's own, with a layer for the job on top.

Layers are virtual environments. The job's own is empty at first: what its command installs lands there and goes
with it. Below it, where the job has requirements, lies one that all jobs with the same requirements share. Below
that lies what the service's interpreter has, which therefore counts as present.
"""

from __future__ import annotations

import codecs
import hashlib
import importlib.util
import json
import os
import platform
import shlex
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pai_sdk.agent import environments
from pai_sdk.agent.requirement_lists import EXACT, kept_for
from pai_sdk.base.files import take_lock

__all__ = ["Requirements", "find_requirements", "has_pip", "install", "layer", "service_paths", "site_packages"]

_PIP_RETRIES = "2"  # pip's own 5 take half a minute where no index responds
_FROM_JOB = "requirements-of-request.txt"


@dataclass(frozen=True)
class Requirements:
    """Requirements for pip, and the environment for them.

    Attributes:
        environment: the virtual environment that will hold it.
        files: requirement files, in pip's format.
        below: folders whose packages count as present.
        has_pip: whether pip is among those.
        made_for: the interpreter, and the state of its packages; an environment for another state is of no use.
        kept_for: how long it may be used, see `requirement_lists`.
    """

    environment: str
    files: tuple[str, ...]
    below: tuple[str, ...]
    has_pip: bool
    made_for: tuple[str, ...] = ()
    kept_for: str = EXACT

    def open_lock(self) -> int:
        """The lock that says who builds the environment and who uses it; open it for as long as that takes."""
        lock = Path(f"{self.environment}.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def service_paths() -> tuple[str, ...]:
    """The folders from which this interpreter takes installed packages."""
    folders = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return tuple(folder for folder in dict.fromkeys(folders) if Path(folder).is_dir())


def site_packages(environment: str | Path) -> str:
    """The folder of the packages in a virtual environment of this Python version."""
    return str(
        Path(environment) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )


def find_requirements(
    usercode: Path, listed: Iterable[str], *, state_dir: Path, cache_dir: Path
) -> Requirements | None:
    """The requirements of a job: those of its request and those of its code; None when there are none.

    Requirements that name local files get an environment of the job's own, all others one in `cache_dir` that is
    named by their content, this Python, what is installed in it, and the day where they are not exact.
    """
    files = []
    listed_text = "".join(f"{line}\n" for line in listed)
    if listed_text.strip():
        own = state_dir / _FROM_JOB
        own.touch(mode=0o600)  # an index URL may hold a password
        own.write_text(listed_text, encoding="utf-8")
        files.append(own)
    if (usercode / "requirements.txt").is_file():
        files.append(usercode / "requirements.txt")
    texts = [_text_of(file) for file in files]
    if not any(_wanted(text) for text in texts):
        return None
    below = service_paths()
    state = _digest_of(_interpreter(below))
    environment, kept = state_dir / "requirements", kept_for(texts)
    if kept:
        environment = cache_dir / _digest_of([texts, *_interpreter(below), *([] if kept == EXACT else [kept])])
    return Requirements(str(environment), tuple(map(str, files)), below, has_pip(), (sys.prefix, state), kept)


def _text_of(file: Path) -> str:
    """Returns the text of a requirement file, in the encodings that pip reads."""
    content = file.read_bytes()
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return content.decode("utf-16" if content.startswith(marks) else "utf-8-sig", errors="backslashreplace")


def has_pip() -> bool:
    """Return whether this interpreter has pip."""
    return importlib.util.find_spec("pip") is not None


def layer(environment: Path, below: Sequence[str], *, has_pip: bool) -> None:
    """Make a virtual environment that sees the packages of other folders too, the first folder first.

    Our interpreter's scripts (`torchrun`, `pip`, …) get a namesake in it, so that they see what it holds.
    """
    venv.EnvBuilder(symlinks=True).create(environment)
    # addsitedir rather than the bare path: .pth files down there (editable installs) count too.
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in below]
    Path(site_packages(environment), "pai_sdk_layers.pth").write_text("".join(lines), encoding="utf-8")
    programs, ours = environment / "bin", Path(sys.executable).parent
    python = shlex.quote(str(programs / "python"))
    # Files of their own, and no links to one: a program that replaces a script may write into it.
    for name in _scripts(ours, ours.stat().st_mtime_ns):
        _write_script(f"{programs}/{name}", f"{python} {shlex.quote(f'{ours}/{name}')}")
    if has_pip:
        for name in ("pip", "pip3"):
            _write_script(f"{programs}/{name}", f"{python} -m pip")


def install(requirements: Requirements, *, lock: int, working_dir: str) -> int:
    """Install the requirements, unless that has been done; what pip says goes to stdout and stderr.

    Of two jobs with the same requirements one builds and one waits. A build that fails or is cut off leaves
    nothing that could be taken for complete.

    Args:
        requirements: what, and where.
        lock: from `open_lock`; afterwards it is held, shared, by all who have it open.
        working_dir: what paths in the requirements are relative to.

    Returns:
        pip's exit code.
    """
    environment = Path(requirements.environment)
    code = 0
    take_lock(lock, shared=True)  # from now on no process removes the environment
    if not environments.is_complete(environment):
        take_lock(lock)
        if not environments.is_complete(environment):
            code = _build(environment, requirements, working_dir)
        take_lock(lock, shared=True)
    if code == 0:
        environments.note_use(environment)
    return code


def _build(environment: Path, requirements: Requirements, working_dir: str) -> int:
    _say("installing the requirements; later jobs with the same ones reuse them")
    # Scripts carry the environment's path, so it is built where it will stay and marked when it is whole.
    shutil.rmtree(environment, ignore_errors=True)
    layer(environment, requirements.below, has_pip=requirements.has_pip)
    code = _pip_install(environment, requirements, working_dir)
    if code == 0:
        environments.mark_complete(environment, requirements.made_for, kept_for=requirements.kept_for)
        environments.prune(environment.parent, made_for=requirements.made_for)
    else:
        shutil.rmtree(environment, ignore_errors=True)
    return code


def _say(text: str) -> None:
    sys.stdout.write(f"[pai-sdk] {text}\n")
    sys.stdout.flush()


def _pip_install(environment: Path, requirements: Requirements, working_dir: str) -> int:
    python = str(environment / "bin" / "python")
    if not requirements.has_pip:
        code = subprocess.run([python, "-m", "ensurepip", "--default-pip"], check=False).returncode
        if code:
            return code
    options = [
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar=off",
        "--root-user-action=ignore",
    ]
    files = [argument for file in requirements.files for argument in ("-r", file)]
    return subprocess.run(
        [python, "-m", "pip", "install", *options, *files],
        cwd=working_dir,
        env={"PIP_RETRIES": _PIP_RETRIES, **os.environ},
        check=False,
    ).returncode


def _wanted(text: str) -> bool:
    return any(line.strip() and not line.strip().startswith("#") for line in text.splitlines())


def _interpreter(below: Sequence[str]) -> list[object]:
    """All that an environment depends on, beside its requirements."""
    installed = sorted(
        entry.name
        for folder in below
        for entry in os.scandir(folder)
        if entry.name.endswith((".dist-info", ".pth"))
    )
    return [platform.python_version(), platform.machine(), sys.prefix, list(below), installed]


def _digest_of(facts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _scripts(folder: Path, changed_at_ns: int) -> tuple[str, ...]:
    """The names of the scripts in a folder of programs that run with the Python beside them.

    Args:
        folder: of the programs.
        changed_at_ns: when the folder was changed: its scripts are read again then.
    """
    python_beside = os.fsencode(folder / "python")
    found = []
    for entry in os.scandir(folder):
        if entry.is_file() and os.access(entry.path, os.X_OK):
            with Path(entry.path).open("rb") as file:
                head = file.read(500)
            if head.startswith(b"#!") and python_beside in head:
                found.append(entry.name)
    return tuple(found)


def _write_script(path: str, command: str) -> None:
    # Without the comforts of pathlib: there may be hundreds, for each job.
    script = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(script, f'#!/bin/sh\nexec {command} "$@"\n'.encode())
        os.fchmod(script, 0o755)
    finally:
        os.close(script)
