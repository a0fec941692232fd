"""The public names of a package or a module, loaded on first use (PEP 562)."""

from __future__ import annotations

import gc
import os
import sys
from _thread import RLock
from _thread import _count as count_threads
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from opcode import opmap
from types import FrameType
from typing import Any, TypeVar

from pai_sdk._core.names.import_paths import shipped_lacks

_IMPORT_FROM = opmap["IMPORT_FROM"]

_MAX_WAIT_S = 10.0

_loading = RLock()
_R = TypeVar("_R")


def lazy_names(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__all__`, `__getattr__` and `__dir__` of a package, from its stub, which type checkers read too."""
    # Each line of the stub is `from MODULE import NAME as NAME`. Submodules are names too, but not in `__all__`;
    # nor are names whose line ends with a comment, such as `# imports numpy`.
    module: Any = sys.modules[package]
    imports = _imports_of_stub(module, f"{module.__file__.rpartition('.')[0]}.pyi")
    homes = {tokens[5]: tokens[1] for tokens in imports}

    def load(name: str) -> Any:
        if name.startswith("__") and name not in homes:  # requested by Python itself, with each import
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if name not in homes:
            return _stand_in(module, name, is_import=is_from_import(sys._getframe(1)))
        if homes[name] == package:
            return import_module(f"{package}.{name}")
        try:
            value = getattr(load_modules(lambda: import_module(homes[name])), name)
        except ImportError as error:
            if _is_complete() or not (error.name or "").startswith("pai_sdk."):
                raise
            message = shipped_lacks(f"{package}.{name}")
            # `from … import` replaces an AttributeError by its own error, which has no reason.
            kind = ImportError if is_from_import(sys._getframe(1)) else AttributeError
            raise kind(message) from None
        setattr(module, name, value)
        return value

    names = [tokens[5] for tokens in imports if tokens[1] != package and len(tokens) == 6]
    return names, load, lambda: sorted({*vars(module), *names})


def _imports_of_stub(module: Any, path: str) -> list[list[str]]:
    """Returns the tokens of each import in a stub."""
    # By the loader, so that it also works in a zip archive.
    stub: bytes = module.__spec__.loader.get_data(path)
    lines = (line.split() for line in stub.decode().splitlines())
    return [tokens for tokens in lines if len(tokens) >= 6 and tokens[0] == "from"]


def _stand_in(module: Any, name: str, *, is_import: bool) -> Any:
    """Returns what stands for a name that a package does not have, or raises the error that says where it is."""
    package = module.__name__
    error = AttributeError(f"module {package!r} has no attribute {name!r}")
    if not _is_complete():
        raise error
    if (stand_in := import_module("pai_sdk._core.names.aliases").module_member(package, name)) is not None:
        return stand_in
    # First, since some names of other SDKs are also names of a door: `Environment` is one of executors.
    import_module("pai_sdk._core.names.peer_imports").check_name(name, package, is_import=is_import)
    if is_import and (door := _door_of(name)):
        path = package.replace(".alipai.pai.", ".")
        raise ImportError(f"{name} is not in {path}: from {door} import {name}", name=path)
    raise error


def _door_of(name: str) -> str:
    """Returns the module that has a public name; empty without one."""
    root: Any = sys.modules["pai_sdk"]
    stub = f"{root.__file__.rpartition('.')[0]}.pyi"
    modules = [tokens[5] for tokens in _imports_of_stub(root, stub) if tokens[1] == "pai_sdk"]
    stubs = [("pai_sdk", "__init__"), *((f"pai_sdk.{each}", each) for each in modules)]
    for door, path in (*stubs, ("pai_sdk.estimator", "alipai/pai/estimator")):
        try:
            imports = _imports_of_stub(root, stub.replace("__init__", path))
        except OSError:
            continue  # a module without a stub
        if any(tokens[5] == name and tokens[1] != "pai_sdk" for tokens in imports):
            return door
    return ""


def load_modules(load: Callable[[], _R]) -> _R:
    """Calls a function that imports modules: in one thread at a time, and without garbage collections.

    Collections, which find nothing there, are a tenth of the time of a submission. They are off meanwhile, unless
    the program has other threads, or has switched them off itself.
    """
    # Two threads that import a package and a module of it would wait for each other. Python then gives one of them
    # an incomplete module. The wait is limited: the other thread may need a module that this one imports.
    lock = _loading
    has_lock = lock.acquire(timeout=_MAX_WAIT_S)
    try:
        # With one thread, nothing else enables or disables collections meanwhile, so their state is restored.
        can_switch = sys.version_info >= (3, 10) and gc.isenabled() and not count_threads()
        return _without_collections(load) if can_switch else load()
    finally:
        if has_lock:
            lock.release()


def _replace_lock() -> None:
    # A child of a fork has not the thread that holds it, so it would wait for each name.
    global _loading
    _loading = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock)


def _without_collections(load: Callable[[], _R]) -> _R:
    # From Python 3.10 on, Ctrl-C is handled after a call, so each call is within the `try` that undoes it.
    try:
        gc.disable()
        return load()
    finally:
        try:
            _move_to_oldest_generation()
        finally:
            gc.enable()


def _move_to_oldest_generation() -> None:
    # The next two collections would each look through all that the modules have created. Nothing stays
    # frozen. What is frozen already would be thawed, so nothing is moved then, as in any program on Python 3.12.
    if gc.get_freeze_count() == 0:
        try:
            gc.freeze()
        finally:
            gc.unfreeze()


def _is_complete() -> bool:
    """Returns False in a job that has only the part of the package that is shipped with jobs."""
    return find_spec("pai_sdk._core.names.aliases") is not None


def is_from_import(caller: FrameType | None) -> bool:
    """Returns True if the code that requests an attribute of a module is a `from … import`."""
    # Skips `__getattr__` of modules that forward to this one.
    while caller is not None and caller.f_code.co_name == "__getattr__":
        caller = caller.f_back
    if caller is None:
        return False
    # For packages, importlib asks first; for modules, the instruction of the statement itself.
    is_in_importlib = caller.f_globals.get("__name__") == "importlib._bootstrap"
    return is_in_importlib or caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM
