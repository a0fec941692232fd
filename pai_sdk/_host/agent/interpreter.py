"""The Python of a job without an image: the service's own, with a layer for the job on top.

Layers are virtual environments. The job's own layer starts empty: packages that its command installs are written
there and removed with the job. Below it, if the job has requirements, is a layer that all jobs with equal
requirements share. Below that are the packages of the service's interpreter, which count as present.
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

from pai_sdk._core.files import take_lock
from pai_sdk._host.agent import environments
from pai_sdk._host.agent.requirement_lists import EXACT, reuse_period

# pip's default of 5 takes half a minute if no index responds.
_PIP_RETRIES = "2"
_FROM_JOB = "requirements-of-request.txt"


@dataclass(frozen=True)
class Requirements:
    """Requirements for pip, and the environment for them."""

    environment: str  # the virtual environment that will hold it
    files: tuple[str, ...]  # in pip's format
    below: tuple[str, ...]  # folders whose packages count as present
    has_pip: bool  # in one of these folders
    # the interpreter and the state of its packages; an environment for another state is of no use
    made_for: tuple[str, ...] = ()
    kept_for: str = EXACT  # see `requirement_lists.reuse_period`

    def open_lock(self) -> int:
        """Opens the lock of the environment; the descriptor stays open while the environment is built or used."""
        lock = Path(f"{self.environment}.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def service_paths() -> tuple[str, ...]:
    """Returns the folders from which this interpreter loads installed packages."""
    folders = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return tuple(folder for folder in dict.fromkeys(folders) if Path(folder).is_dir())


def site_packages(environment: str | Path) -> str:
    """Returns the folder of the packages in a virtual environment of this Python version."""
    return str(
        Path(environment) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )


def find_requirements(
    usercode: Path, requirement_lines: Iterable[str], *, state_dir: Path, cache_dir: Path
) -> Requirements | None:
    """Returns the requirements of a job: of its request and of its code; None without any."""
    # Requirements that name local files get an environment of this job only. All others get one in `cache_dir`,
    # named by their content, this Python, its installed packages, and the day if they are not exact.
    files = []
    content = "".join(f"{line}\n" for line in requirement_lines)
    if content.strip():
        request_file = state_dir / _FROM_JOB
        # An index URL may contain a password, so the mode is set before the content is written.
        request_file.touch(mode=0o600)
        request_file.write_text(content, encoding="utf-8")
        files.append(request_file)
    if (usercode / "requirements.txt").is_file():
        files.append(usercode / "requirements.txt")
    contents = [_text_of(file) for file in files]
    if not any(_has_requirements(text) for text in contents):
        return None
    below = service_paths()
    state = _digest_of(_interpreter(below))
    environment, valid_for = state_dir / "requirements", reuse_period(contents)
    if valid_for:
        environment = cache_dir / _digest_of(
            [contents, *_interpreter(below), *([] if valid_for == EXACT else [valid_for])]
        )
    return Requirements(str(environment), tuple(map(str, files)), below, has_pip(), (sys.prefix, state), valid_for)


def _text_of(file: Path) -> str:
    """Returns the text of a requirement file, in the encodings that pip reads."""
    content = file.read_bytes()
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return content.decode("utf-16" if content.startswith(marks) else "utf-8-sig", errors="backslashreplace")


def has_pip() -> bool:
    """Returns True if this interpreter has pip."""
    return importlib.util.find_spec("pip") is not None


def layer(environment: Path, below: Sequence[str], *, has_pip: bool) -> None:
    """Creates a virtual environment that also loads packages of other folders, in their order."""
    # The scripts of this interpreter (`torchrun`, `pip`, …) get a namesake in it, so that they load its packages.
    venv.EnvBuilder(symlinks=True).create(environment)
    # addsitedir instead of the bare path, so that .pth files in the folders (editable installs) work too.
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in below]
    Path(site_packages(environment), "pai_sdk_layers.pth").write_text("".join(lines), encoding="utf-8")
    programs, service_programs = environment / "bin", Path(sys.executable).parent
    python = shlex.quote(str(programs / "python"))
    # Files of their own, and no links to one: a program that replaces a script may write into it.
    for name in _scripts(service_programs, service_programs.stat().st_mtime_ns):
        _write_script(f"{programs}/{name}", f"{python} {shlex.quote(f'{service_programs}/{name}')}")
    if has_pip:
        for name in ("pip", "pip3"):
            _write_script(f"{programs}/{name}", f"{python} -m pip")


def install(requirements: Requirements, *, lock: int, working_dir: str) -> int:
    """Installs the requirements once, with pip's output on stdout and stderr; returns pip's exit code."""
    # Of two jobs with equal requirements one builds and one waits. A build that fails or is killed leaves nothing
    # that counts as complete.
    # `lock` is from `open_lock`; afterwards it is held, shared, by all processes that have it open.
    environment = Path(requirements.environment)
    code = 0
    # From here on no process removes the environment.
    take_lock(lock, shared=True)
    if not environments.is_complete(environment):
        take_lock(lock)
        # Checked again under the exclusive lock: another job may have built it while this one waited.
        if not environments.is_complete(environment):
            code = _build(environment, requirements, working_dir)
        take_lock(lock, shared=True)
    if code == 0:
        environments.record_use(environment)
    return code


def _build(environment: Path, requirements: Requirements, working_dir: str) -> int:
    _print_notice("installing the requirements; later jobs with the same ones reuse them")
    # Scripts contain the environment's path, so it is built in its final location, and marked when it is complete.
    shutil.rmtree(environment, ignore_errors=True)
    layer(environment, requirements.below, has_pip=requirements.has_pip)
    code = _pip_install(environment, requirements, working_dir)
    if code == 0:
        environments.mark_complete(environment, requirements.made_for, valid_for=requirements.kept_for)
        environments.prune(environment.parent, interpreter=requirements.made_for)
    else:
        shutil.rmtree(environment, ignore_errors=True)
    return code


def _print_notice(text: str) -> None:
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


def _has_requirements(text: str) -> bool:
    return any(line.strip() and not line.strip().startswith("#") for line in text.splitlines())


def _interpreter(below: Sequence[str]) -> list[object]:
    """Returns what an environment depends on, besides its requirements."""
    installed = sorted(
        entry.name
        for folder in below
        for entry in os.scandir(folder)
        if entry.name.endswith((".dist-info", ".pth"))
    )
    return [platform.python_version(), platform.machine(), sys.prefix, list(below), installed]


def _digest_of(values: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _scripts(folder: Path, changed_at_ns: int) -> tuple[str, ...]:
    """Returns the names of the scripts in a folder of programs that run with the Python beside them."""
    # `changed_at_ns` is only part of the cache key.
    python_beside = os.fsencode(folder / "python")
    names = []
    for entry in os.scandir(folder):
        if entry.is_file() and os.access(entry.path, os.X_OK):
            with Path(entry.path).open("rb") as file:
                head = file.read(500)
            if head.startswith(b"#!") and python_beside in head:
                names.append(entry.name)
    return tuple(names)


def _write_script(path: str, command: str) -> None:
    # Without pathlib, which is slower: there may be hundreds of scripts for each job.
    script = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(script, f'#!/bin/sh\nexec {command} "$@"\n'.encode())
        os.fchmod(script, 0o755)
    finally:
        os.close(script)
