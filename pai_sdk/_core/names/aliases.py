"""The registry of names that other SDKs use for attributes of our classes.

It is empty here: `pai_sdk/__init__.py` registers the module with the names by its path; no class imports it.

Standard library only: this is loaded with `Estimator` and `Processor`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_modules: list[str] = []


def register(module: str) -> None:
    """Sets the module with the names; it is imported when an attribute is missing for the first time."""
    # The module has `ALIASES`, the classes whose members stand in for missing ones, and `REPLACEMENTS`, the texts
    # that name a replacement; both by the name of our class.
    _modules[:] = [module]


class Aliased:
    """Base of classes whose missing attributes are searched for in the registry.

    An attribute of another SDK is accepted, or its error names the replacement.
    """

    # Hidden from type checkers: they would accept every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return _resolve(self, name)

        def __dir__(self) -> list[str]:
            names = (vars(aliases) for aliases in _tables("ALIASES", type(self)))
            return sorted({*super().__dir__(), *(name for table in names for name in table if name[0] != "_")})


def module_member(module: str, name: str) -> Any:
    """Returns what stands for a name of another SDK in a module of ours; None without one."""
    tables = (import_module(path).MODULE_MEMBERS for path in _modules)
    return next((table[module][name] for table in tables if name in table.get(module, ())), None)


def _resolve(owner: object, name: str) -> Any:
    """Returns a member of an alias class, bound to the owner."""
    # Requested by Python itself, as by `copy` and `pickle`.
    if name.startswith("__"):
        return object.__getattribute__(owner, name)
    # For weight: needed after a mistake only.
    from pai_sdk._core.names.peer_attributes import attribute_hint, missing_attribute
    from pai_sdk.errors import NotOfferedAttributeError

    kind = type(owner)
    for aliases in _tables("ALIASES", kind):
        if name in vars(aliases):
            return vars(aliases)[name].__get__(owner, kind)
    replacements = (table[name] for table in _tables("REPLACEMENTS", kind) if name in table)
    if replacement := next(replacements, None) or attribute_hint(kind, name):
        raise NotOfferedAttributeError(kind.__name__, name, replacement)
    # Requested by libraries, such as IPython; or a property of the owner, whose error is raised again.
    if name.startswith("_") or hasattr(kind, name):
        return object.__getattribute__(owner, name)
    raise missing_attribute(owner, name)


def _tables(attribute: str, kind: type) -> list[Any]:
    """Returns the entries of the registered modules for a class and its bases."""
    tables = (getattr(import_module(module), attribute) for module in _modules)
    return [table[base.__name__] for table in tables for base in kind.__mro__ if base.__name__ in table]
