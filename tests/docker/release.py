"""The trial of a release, `python -m tests.docker.release`: an empty container with Python, and README.md.

Builds the wheel and the sdist of the checkout, starts containers that have Debian's Python and nothing else, and
types the commands of the README, in its order; then it runs its program. The steps are those of
docs/contributing/release.md. As root on Debian, since the Docker engine is one that the tests start.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.docker.engine import BASE_IMAGE, Engine, why_not

__all__ = ["STEPS", "Container", "Readme", "empty_container", "main"]

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w*)[ \t]*([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="([^"]+)"')
_TYPED = re.compile(r"`((?:pip install|pai-sdk) [^`]+)`")
_CLONE, _NEW = "/srv/clone", "/srv/new"
_MODEL = "model/model.txt"
# What the image `python:3.11` has and a minimal Debian has not.
_LIKE_A_PYTHON_IMAGE = "rm -f /usr/lib/python3*/EXTERNALLY-MANAGED; mkdir -p /srv/new"
_MAKE = "command -v make || { apt-get -qq update && apt-get -qq install -y --no-install-recommends make; }"


class TrialError(Exception):
    """A step has failed."""


@dataclass(frozen=True)
class Readme:
    """What a reader of the README types."""

    text: str

    @property
    def commands(self) -> list[str]:
        """The commands in blocks of a shell, without comments: `make demo`, …"""
        blocks = [(name, block.splitlines()) for name, _, block in _BLOCK.findall(self.text)]
        lines = [line for name, block in blocks if name in ("bash", "sh") for line in block]
        lines += [line[2:] for name, block in blocks if name == "console" for line in block if line[:2] == "$ "]
        return [command for line in lines if (command := line.partition("#")[0].strip())]

    @property
    def typed(self) -> list[str]:
        """The commands within sentences: how the package is installed, and its first program."""
        return [*dict.fromkeys(_TYPED.findall(_BLOCK.sub("", self.text)))]

    @property
    def files(self) -> dict[str, str]:
        """The files of the example."""
        found = [(_TITLE.search(info), block) for _, info, block in _BLOCK.findall(self.text)]
        return {title[1]: block for title, block in found if title}

    @property
    def program(self) -> str:
        """The program of the example."""
        blocks = _BLOCK.findall(self.text)
        return "\n".join(block for name, info, block in blocks if name == "python" and not _TITLE.search(info))


@dataclass
class Trial:
    """A trial: the readme, the packages that were built, and the containers."""

    engine: Engine
    folder: Path
    with_tests: bool
    stack: ExitStack
    readme: Readme = field(default_factory=lambda: Readme((ROOT / "README.md").read_text(encoding="utf-8")))

    def build(self) -> None:
        """Build the packages."""
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(self.folder), str(ROOT)]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode:
            raise TrialError(built.stdout + built.stderr)
        self.wheel, self.sdist = next(self.folder.glob("*.whl")), next(self.folder.glob("*.tar.gz"))

    def start(self) -> None:
        """Start an empty container, and put the sources into it."""
        self.container = self.stack.enter_context(empty_container(self.engine))
        if self.container.says("pip list --format=freeze | grep -v -E '^(pip|setuptools|wheel)=='; true").strip():
            raise TrialError("the container is not empty: it has Python packages")
        self.container.put(self.sdist, "/srv")
        self.container.type(f"mkdir {_CLONE} && tar -xzf /srv/{self.sdist.name} -C {_CLONE} --strip-components=1")

    def type_commands(self) -> None:
        """Type the commands of the README's blocks; its tests only if they were asked for."""
        self.container.type(_MAKE)
        for command in self.readme.commands:
            if command != "make test" or self.with_tests:
                self.container.type(command, folder=_CLONE)

    def install(self) -> None:
        """Install as the README says."""
        found = [command for command in self.readme.typed if command.startswith("pip install")]
        if not found:
            raise TrialError("the README no longer says how the package is installed")
        for command in found:
            self.container.type(command, folder=_CLONE)

    def run_first_program(self) -> None:
        """Type the other commands in the README's sentences, in an empty folder."""
        for command in self.readme.typed:
            if not command.startswith("pip install"):
                self.container.type(command, folder=_NEW)

    def run_program(self) -> None:
        """Run the README's example in an empty folder."""
        for name, text in self.readme.files.items():
            self.container.write(text, f"{_NEW}/{name}")
        self.container.write(self.readme.program, f"{_NEW}/first.py")
        self.container.type("python first.py", folder=_NEW)
        if not self.container.says(f"cat {_NEW}/{_MODEL}").strip():
            raise TrialError(f"the example has left no {_MODEL}")

    def install_wheel(self) -> None:
        """Install the wheel in a second empty container, and run the first program there."""
        self.container = self.stack.enter_context(empty_container(self.engine))
        self.container.put(self.wheel, "/srv")
        self.container.type(f"pip install '/srv/{self.wheel.name}[service]'")
        self.run_first_program()
        self.container.type("pai-sdk service stop")


STEPS: dict[str, Callable[[Trial], None]] = {
    "The wheel and the sdist of the checkout are built.": Trial.build,
    "An empty container with Python and pip alone is started; it gets the sdist's files.": Trial.start,
    "The commands of the README's blocks succeed there (`make demo`; `make test` with `--with-tests`).": (
        Trial.type_commands
    ),
    "The package is installed as the README says.": Trial.install,
    "The README's other commands succeed in an empty folder (`pai-sdk demo`).": Trial.run_first_program,
    "The README's program runs in an empty folder, and its model is there.": Trial.run_program,
    "The wheel is installed in a second empty container, and `pai-sdk demo` succeeds there.": Trial.install_wheel,
}
"""The steps of the trial, as docs/contributing/release.md lists them."""


@dataclass(frozen=True)
class Container:
    """A container in which commands are typed."""

    container: Any  # docker-py's

    def type(self, command: str, *, folder: str = "/srv") -> None:
        """Type a command, and show what it says.

        Raises:
            TrialError: it has failed.
        """
        print(f"    $ {command}", flush=True)
        api = self.container.client.api
        made = api.exec_create(
            self.container.id, ["bash", "-c", command], workdir=folder, environment=_environment()
        )
        said = api.exec_start(made["Id"])
        if code := api.exec_inspect(made["Id"])["ExitCode"]:
            raise TrialError(f"{command!r} ended with {code}:\n{said.decode(errors='replace')[-5000:]}")
        lines = said.decode(errors="replace").rstrip().splitlines()
        print("".join(f"      {line[:110]}\n" for line in lines[-4:]), end="", flush=True)

    def says(self, command: str) -> str:
        """The output of a command."""
        return str(self.container.exec_run(["bash", "-c", command], environment=_environment()).output.decode())

    def put(self, path: Path, folder: str) -> None:
        """Copy a file of this machine into the container."""
        self._put(path.name, path.read_bytes(), folder)

    def write(self, text: str, path: str) -> None:
        """Write a file in the container."""
        folder, _, name = path.rpartition("/")
        self.says(f"mkdir -p {shlex.quote(folder)}")
        self._put(name, text.encode(), folder)

    def _put(self, name: str, content: bytes, folder: str) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        self.container.put_archive(folder, archive.getvalue())


@contextmanager
def empty_container(engine: Engine) -> Iterator[Container]:
    """An empty container with Python, which installs packages from where this machine does."""
    with engine.client() as client:
        mounts = {path: {"bind": path, "mode": "ro"} for path in _places_of_pip()}
        container = client.containers.run(
            BASE_IMAGE, ["sleep", "infinity"], detach=True, init=True, network_mode="host", volumes=mounts
        )
        try:
            made = Container(container)
            made.says(_LIKE_A_PYTHON_IMAGE)
            yield made
        finally:
            container.remove(force=True)


def _environment() -> dict[str, str]:
    """The variables by which pip and apt reach the network here."""
    names = re.compile(r"PIP_.+|SSL_CERT_.+|(https?|no|all)_proxy", re.IGNORECASE)
    return {"HOME": "/srv", **{name: value for name, value in os.environ.items() if names.fullmatch(name)}}


def _places_of_pip() -> list[str]:
    """The configuration of pip on this machine, and the files and folders that it names."""
    pip = [sys.executable, "-m", "pip", "config"]
    listed = subprocess.run([*pip, "list"], capture_output=True, text=True, check=True).stdout
    debug = subprocess.run([*pip, "debug"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(\S+), exists: True", debug)
    # An index is a folder `simple`, with links to files beside it.
    found += [word.removeprefix("file://").removesuffix("/simple") for word in re.findall(r"[^\s'\"]+", listed)]
    there = {path for path in found if path.startswith("/") and Path(path).exists()}
    # A folder within another one that is mounted is there already.
    return sorted(path for path in there if not any(Path(other) in Path(path).parents for other in there))


def main(arguments: list[str]) -> int:
    """Run the trial; gives 0 when all steps have succeeded."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.docker.release", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--with-tests", action="store_true", help="run `make test` in the container, too (minutes)"
    )
    chosen = parser.parse_args(arguments)
    if reason := why_not():
        print(f"the trial cannot run here: {reason}", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pai-release-")))
        engine = Engine(folder / "engine")
        stack.callback(engine.down)
        engine.up()
        engine.load_base()
        trial = Trial(engine, folder, chosen.with_tests, stack)
        for number, (title, step) in enumerate(STEPS.items(), start=1):
            begun = time.monotonic()
            print(f"{number}. {title}", flush=True)
            try:
                step(trial)
            except TrialError as error:
                print(f"   FAILED: {error}", file=sys.stderr)
                return 1
            print(f"   done in {time.monotonic() - begun:.0f} s", flush=True)
    print("the trial has succeeded")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
