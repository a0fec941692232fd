"""Stand-ins for unsupported names of alipai: they can be imported, and raise when they are used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from pai_sdk._core.names.lazy_names import is_from_import
from pai_sdk._core.names.peer_imports import check_name
from pai_sdk.alipai.replacements import instead_of
from pai_sdk.errors import NotOfferedAttributeError, NotOfferedError

DEPLOYING = "deploy it with PAI-EAS: in the console, with `eascmd`, or by the package alibabacloud_eas20210701"
"""How a model is deployed without this package."""

SERVING = (
    "pai_sdk does not serve models. estimator.model_data() is the URI of the model, and "
    f"job.download('model', 'model/') fetches it; {DEPLOYING}"
)
"""The replacement of deploying."""


class _Unsupported(type):
    """The class of the stand-ins: they can be imported and subclassed, and raise when a member is used."""

    name: str
    instead: str

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise NotOfferedError(cls.name, cls.instead)

    def __getattr__(cls, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)  # asked by Python itself
        error = NotOfferedAttributeError(cls.name, attribute, cls.instead)
        error.args = (f"{error.name} is not part of pai_sdk: {cls.instead}",)
        raise error


def unsupported(name: str, instead: str) -> type:
    """Returns a class that stands for an unsupported name, and raises when it is used."""
    return _Unsupported(name.rpartition(".")[2], (), {"name": name, "instead": instead})


def unsupported_names(module: str, names: Iterable[str], instead: str) -> Callable[[str], type]:
    """Returns the `__getattr__` of a module with unsupported names."""
    offered = frozenset(names)

    def find(name: str) -> type:
        if name not in offered:
            check_name(name, _path(module), is_import=is_from_import(sys._getframe(1)))
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return unsupported(f"{_path(module)}.{name}", instead)

    return find


def unsupported_module(module: str) -> tuple[list[str], Callable[[str], type]]:
    """Returns `__path__` and `__getattr__` of an unsupported module, from which any name can be imported."""

    def find(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)  # asked by Python itself
        return unsupported(f"{_path(module)}.{name}", _instead(f"{_path(module)}.{name}"))

    return _NoModules(module), find


def _path(module: str) -> str:
    """Returns the path of a module by which it is imported."""
    return module.replace("pai_sdk.alipai.pai.", "pai_sdk.")


def _instead(name: str) -> str:
    return instead_of(name.replace("pai_sdk", "pai", 1))


class _NoModules(list[str]):
    """The `__path__` of a module without submodules: the search for one raises."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._module = module

    def __iter__(self) -> NoReturn:
        path = _path(self._module)
        message = f"the modules of {path} are not part of pai_sdk; use instead: {_instead(path)}"
        raise ModuleNotFoundError(message, name=path)
