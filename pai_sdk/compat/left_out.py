"""Stand-ins for what alipai offers and pai_sdk leaves out: they can be imported, and raise when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pai_sdk.errors import NotOfferedError

__all__ = ["DEPLOYING", "SERVING", "left_out", "names_left_out"]

DEPLOYING = "deploy it with PAI-EAS: in the console, with `eascmd`, or by the package alibabacloud_eas20210701"
"""How a model is deployed without this package."""

SERVING = (
    "it trains, and does not serve. estimator.model_data() is the URI of the model, and "
    f"job.download('model', 'model/') fetches it; {DEPLOYING}"
)
"""The replacement of deploying."""


class _LeftOut(type):
    """The class of the stand-ins: they can be imported and subclassed, and raise when anything of them is used."""

    name: str
    instead: str

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise NotOfferedError(cls.name, cls.instead)

    def __getattr__(cls, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)  # asked by Python itself
        raise NotOfferedError(f"{cls.name}.{attribute}", cls.instead)


def left_out(name: str, instead: str) -> type:
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
    return _LeftOut(name.rpartition(".")[2], (), {"name": name, "instead": instead})


def names_left_out(module: str, names: Iterable[str], instead: str) -> Callable[[str], type]:
    """The `__getattr__` of a module whose names are left out.

    Args:
        module: the name of the module.
        names: those that alipai's module of that name has.
        instead: what replaces them.
    """
    known = frozenset(names)

    def find(name: str) -> type:
        if name not in known:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return left_out(f"{module}.{name}", instead)

    return find
