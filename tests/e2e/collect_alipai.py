"""Prints the names that alipai offers, as alipai_names.json has them; run by an interpreter that has alipai.

    python -m venv alipai && alipai/bin/pip install alipai==0.4.13 "setuptools<81"
    alipai/bin/python tests/e2e/collect_alipai.py > tests/unit/alipai/alipai_names.json

The file has facts only: modules, their names, and of these the members and the names of parameters. Of a class,
`__init__` is its parameters; the members of private base classes are its own.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pai
import pydantic

# Generated clients and the vendored parts of them: the module is named, its 1,500 classes are not.
_GENERATED = "pai.libs."


def main() -> None:
    """Collect and print."""
    found = {"pai": {"__version__": None}}
    for info in sorted(pkgutil.walk_packages(pai.__path__, "pai."), key=lambda one: one.name):
        if info.name.startswith(_GENERATED):
            if info.name.count(".") == 2:
                found[info.name] = {}
            continue
        module = importlib.import_module(info.name)
        found[info.name] = dict(sorted(_of_module(module, info.ispkg)))
    sys.stdout.write(_json(found))


def _of_module(module: ModuleType, is_package: bool) -> Any:
    assigned = _assigned(ast.parse(Path(module.__file__).read_text()).body)
    for name, value in vars(module).items():
        if name.startswith("_") or inspect.ismodule(value) or type(value).__module__ in ("typing", "__future__"):
            continue
        home = getattr(value, "__module__", "")
        own = home == module.__name__ or name in assigned or (is_package and home.startswith("pai."))
        if not own or name in ("logger", "T"):
            continue
        if inspect.isclass(value):
            yield name, dict(sorted(_of_class(value).items()))
        else:
            yield name, _parameters(value) if inspect.isfunction(value) else None


def _of_class(cls: type) -> dict[str, Any]:
    members: dict[str, Any] = {}
    bases = [base for base in cls.__mro__[1:] if base.__module__.startswith("pai.")]
    public = {name for base in bases if not base.__name__.startswith("_") for name in dir(base)}
    for base in reversed([cls, *(base for base in bases if base.__name__.startswith("_"))]):
        for name, value in vars(base).items():
            value = getattr(value, "__func__", value)
            if name == "__init__" and inspect.isfunction(value):
                members[name] = _parameters(value)
                for attribute in _own_attributes(value):
                    members.setdefault(attribute, None)
            elif not name.startswith("_") and not (base is not cls and name in public):
                members[name] = _parameters(value) if inspect.isfunction(value) else None
    if issubclass(cls, pydantic.BaseModel):
        members |= dict.fromkeys(name for name in cls.model_fields)
        for name in ("model_config", "model_fields", "model_computed_fields", "model_post_init"):
            members.pop(name, None)
        members["__init__"] = [*cls.model_fields]
        members |= {"to_dict": [], "model_dump": []} if hasattr(cls, "to_dict") else {"model_dump": []}
    return members


def _parameters(function: Any) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.kind not in kinds and one.name not in ("self", "cls")]


def _own_attributes(init: Any) -> set[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(init)))
    except OSError:  # a dataclass has it written by Python
        return {*_parameters(init)}
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and not node.attr.startswith("_")
    }


def _assigned(body: list[ast.stmt]) -> set[str]:
    return {
        target.id
        for node in body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def _json(found: dict[str, Any]) -> str:
    """One line a name, so that changes are read easily."""
    modules = []
    for module, names in found.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in names.items())
        modules.append(f" {json.dumps(module)}: " + (f"{{\n{lines}\n }}" if lines else "{}"))
    return "{\n" + ",\n".join(modules) + "\n}\n"


if __name__ == "__main__":
    main()
