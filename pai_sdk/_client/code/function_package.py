"""A function call as the code of a job: the pickled call, the versions it needs, its signature.

The code folder gets a folder `_pai_function`, with the program of the job, a copy of
`_data/run/functions/calling.py`, a copy of cloudpickle, and the pickled call, signed with a key that only the job
and the submitter have.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import os
import re
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import ModuleType
from typing import Any

from pai_sdk._client.code.package import package_code
from pai_sdk._core.files import publish_once
from pai_sdk._core.function_pickle import pickler_class
from pai_sdk._core.user_modules import is_of_user
from pai_sdk._data.run.functions import calling as calling
from pai_sdk.errors import InvalidInputError, Problem

FOLDER = "_pai_function"
PROGRAM = f"{FOLDER}/run.py"
LABEL = "pai-sdk.function"
"""The label with the number of the call, from which the submitter derives the key of the job."""

_SECRET_BYTES = 32
_PIN = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*==\s*([0-9][^\s,;]*)")
# cloudpickle registers modules to pickle by value for the whole process, so one thread at a time pickles.
_registry_lock = threading.Lock()


@dataclass(frozen=True)
class FunctionCall:
    """The call of a job."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    is_training: bool = False  # `f(config)` or another kind of training, whose values are reported

    @property
    def name(self) -> str:
        """Returns the name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def job_key(nonce: str) -> bytes:
    """Returns the key of one job, from its number and the secret of this user, `~/.pai/function-secret`."""
    # Derived, so that every process of the user can read the results of the user's jobs, and no key is stored.
    path = Path.home() / ".pai" / "function-secret"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Two processes that start at once both read the secret of the first one below.
        publish_once(path, os.urandom(_SECRET_BYTES))
    return hmac.new(path.read_bytes(), nonce.encode(), hashlib.sha256).digest()


class PackedCall:
    """A code folder with a call, which is removed with this object, or at the end of the program."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="pai-function-"))
        self.source: Path | None = None  # the user's folder whose files are in it; None without one
        # The number of the call, from which the key of its job is derived.
        self.nonce = os.urandom(16).hex()
        self.key = job_key(self.nonce)
        # Also runs at the end of the program, unlike `__del__`.
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def pack_call(
    call: FunctionCall,
    source_dir: str | os.PathLike[str] | None,
    requirements: Sequence[str],
    *,
    allow_secrets: bool = False,
) -> PackedCall:
    """Copies the user's code into a new folder, and writes the call beside it."""
    packed = PackedCall()
    if source_dir is not None:
        tree = package_code(source_dir, allow_secrets=allow_secrets)
        packed.source = tree.root
        for entry in tree.entries:
            target = packed.path / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree.root / entry.path, target)
    write_package(
        call, packed.path, key=packed.key, nonce=packed.nonce, source_dir=packed.source, requirements=requirements
    )
    return packed


def write_package(
    call: FunctionCall,
    folder: Path,
    *,
    key: bytes,
    nonce: str,
    source_dir: Path | None = None,
    requirements: Sequence[str] = (),
) -> None:
    """Writes `_pai_function` into a code folder; refuses a call that cannot be pickled, or whose pins conflict."""
    import cloudpickle

    # Modules in `source_dir` are uploaded with the job, so they are not pickled.
    payload, modules = _pickle_call(call, source_dir)
    distributions = _distributions(modules)
    # The job unpickles with the pinned versions: they must match what is installed on this machine.
    _check_pins(requirements, dict(distributions.values()))
    header = {
        "kind": "training" if call.is_training else "call",
        "name": call.name,
        "nonce": nonce,
        "python": "{}.{}".format(*sys.version_info),
        "modules": distributions,
    }
    target = folder / FOLDER
    target.mkdir()
    shutil.copyfile(calling.__file__, folder / PROGRAM)
    shutil.copytree(
        Path(cloudpickle.__file__).parent, target / "cloudpickle", ignore=shutil.ignore_patterns("__pycache__")
    )
    (target / calling.CALL_FILE).write_bytes(calling.signed(key, header, payload))


def _pickle_call(call: FunctionCall, source_dir: Path | None) -> tuple[bytes, set[str]]:
    """Returns the pickled call, and the top-level modules that it needs from the image."""
    # Modules that are neither installed nor in the code folder are pickled by value.
    value = (call.function, tuple(call.args), dict(call.kwargs or {}))
    by_value: set[str] = set()
    while True:
        with _by_value(by_value):
            payload, modules = _dump(value, call.name)
        user_modules = {name for name in modules if name not in by_value and _is_user_file(name, source_dir)}
        if not user_modules:
            return payload, {name.partition(".")[0] for name in modules - by_value}
        # Repeated until no new module appears: a module pickled by value may refer to others.
        by_value |= user_modules


def _dump(target: Any, name: str) -> tuple[bytes, set[str]]:
    modules: set[str] = set()

    class Pickler(pickler_class()):  # type: ignore[misc] # cloudpickle has no types
        def persistent_id(self, value: Any) -> None:
            # cloudpickle would pickle the content of the file instead.
            if calling.is_open_file(value):
                raise TypeError(f"cannot pickle '{type(value).__name__}' object")
            if isinstance(value, ModuleType):
                modules.add(value.__name__)
            else:
                kind = value if isinstance(getattr(value, "__module__", None), str) else type(value)
                modules.add(kind.__module__)

    content = io.BytesIO()
    try:
        Pickler(content).dump(target)
    except Exception as error:
        # Pickling runs code of any class, which may raise anything.
        hint = "leave out open files, locks, connections and generators; create them in the function"
        raise InvalidInputError([Problem("function", f"{name} cannot be pickled: {error}", hint)]) from error
    return content.getvalue(), modules


@contextmanager
def _by_value(names: Iterable[str]) -> Iterator[None]:
    import cloudpickle

    with _registry_lock:
        registered = []
        try:
            for name in names:
                # Modules that the user has registered stay registered after the block.
                if name not in cloudpickle.list_registry_pickle_by_value():
                    cloudpickle.register_pickle_by_value(sys.modules[name])
                    registered.append(name)
            yield
        finally:
            for name in registered:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])


def _is_user_file(name: str, source_dir: Path | None) -> bool:
    """Returns True if a module is a file of the user: neither installed, nor in the uploaded code."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or name == "__main__" or not is_of_user(name):
        return False
    return source_dir is None or not Path(file).resolve().is_relative_to(source_dir.resolve())


def _distributions(modules: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns installed modules with distribution and version, except pai_sdk and the standard library."""
    result = {}
    for name in sorted(modules):
        if name in sys.stdlib_module_names or name in ("pai_sdk", "cloudpickle", "__main__"):
            continue
        # Most distributions have the name of their module; a look at all of them takes a second.
        candidates = [name] if _is_installed(name) else _distributions_of().get(name, [])
        for distribution in filter(_is_installed, candidates[:1]):
            result[name] = (distribution, version(distribution))
    return result


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


@cache
def _distributions_of() -> Mapping[str, Sequence[str]]:
    return packages_distributions()


def _check_pins(requirements: Sequence[str], installed: Mapping[str, str]) -> None:
    problems = []
    for number, requirement in enumerate(requirements):
        pin = _PIN.match(requirement) if isinstance(requirement, str) else None
        used = next(
            (each for name, each in installed.items() if pin and _normalize(name) == _normalize(pin[1])), None
        )
        if pin is not None and used is not None and calling.series_of(used) != calling.series_of(pin[2]):
            message = f"{requirement} conflicts with {pin[1]} {used}, with which the function is pickled here"
            problems.append(Problem(f"requirements[{number}]", message, f"'{pin[1]}=={used}'"))
    if problems:
        raise InvalidInputError(problems)


def _normalize(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
