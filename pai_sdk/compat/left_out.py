"""Stand-ins for what alipai offers and pai_sdk leaves out: they can be imported, and raise when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from pai_sdk.compat.replacements import instead_of
from pai_sdk.errors import NotOfferedAttributeError, NotOfferedError

__all__ = ["DEPLOYING", "SERVING", "unsupported", "unsupported_module", "unsupported_names"]

DEPLOYING = "deploy it with PAI-EAS: in the console, with `eascmd`, or by the package alibabacloud_eas20210701"
"""How a model is deployed without this package."""

SERVING = (
    "pai_sdk does not serve models. estimator.model_data() is the URI of the model, and "
    f"job.download('model', 'model/') fetches it; {DEPLOYING}"
)
"""The replacement of deploying."""


class _Unsupported(type):
    """The class of the stand-ins: they can be imported and subclassed, and raise when anything of them is used."""

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
    """A class that stands for something left out.

    Args:
        name: what it stands for, as alipai's users know it.
        instead: what replaces it, as a sentence.

    Example:
        >>> Model = left_out("Model", "the model is at estimator.model_data()")
        >>> Model(model_data="oss://models/7/")
        Traceback (most recent call last):
        pai_sdk.errors.NotOfferedError: Model is not part of pai_sdk: the model is at estimator.model_data()
    """
    return _Unsupported(name.rpartition(".")[2], (), {"name": name, "instead": instead})


def unsupported_names(module: str, names: Iterable[str], instead: str) -> Callable[[str], type]:
    """The `__getattr__` of a module whose names are left out.

    Args:
        module: the name of the module.
        names: those that alipai's module of that name has.
        instead: what replaces them.
    """
    offered = frozenset(names)

    def find(name: str) -> type:
        if name not in offered:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return unsupported(f"{module}.{name}", instead)

    return find


def unsupported_module(module: str) -> tuple[list[str], Callable[[str], type]]:
    """The `__path__` and the `__getattr__` of a module that is left out, or of which most names are.

    Any name can be imported from it; its use raises, and so does the import of a module within it.

    Args:
        module: the name of the module; `replacements` says what replaces it.

    Example:
        >>> _, find = module_left_out("pai_sdk.common.git_utils")
        >>> find("git_clone_repo")({"repo": "…"})
        Traceback (most recent call last):
        pai_sdk.errors.NotOfferedError: pai_sdk.common.git_utils.git_clone_repo is not part of pai_sdk: \
git_config= of an Estimator
    """

    def find(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)  # asked by Python itself
        return unsupported(f"{module}.{name}", _instead(f"{module}.{name}"))

    return _NoModules(module), find


def _instead(name: str) -> str:
    return instead_of(name.replace("pai_sdk", "pai", 1))


class _NoModules(list[str]):
    """The `__path__` of a module without modules: the search for one raises."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._module = module

    def __iter__(self) -> NoReturn:
        raise NotOfferedError(self._module, _instead(self._module))
