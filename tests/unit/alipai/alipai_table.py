"""Compares the names of alipai with those of pai_sdk, and writes the table of docs/alipai-names.md:

python -m tests.unit.alipai.alipai_table

`alipai_names.json` has alipai's names; `tests/e2e/collect_alipai.py` makes it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from pai_sdk.alipai.member_aliases import ALIASES
from pai_sdk.alipai.replacements import ABSENT, instead_of, key_of
from pai_sdk.alipai.session_names import SESSION_REPLACEMENTS
from pai_sdk.errors import NotOfferedError

__all__ = ["NAMES", "PAGE", "PRESENT", "Compared", "compare", "differing_positions", "new_page"]

NAMES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("alipai_names.json").read_text(encoding="utf-8")
)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "alipai-names.md"
_BEGIN, _END = "<!-- names of alipai: begin -->\n", "<!-- names of alipai: end -->\n"
PRESENT = "present"
# Parameters that are accepted under alipai's name; tests of their own call them.
_ACCEPTED = {
    "credential_config": "credentials",
    "default_training_inputs": "default_inputs",
    "supported_instance_type": "supported_instance_types",
    "training_job_id": "job_id",
}


@dataclass(frozen=True)
class Compared:
    """A name of alipai here.

    Attributes:
        module: the module of alipai.
        name: within it; empty for the module itself.
        word: `present`, or `replaced: …`, or `absent: …`; empty if nothing is known of it.
    """

    module: str
    name: str
    word: str


def compare() -> Iterator[Compared]:
    """All modules, names, members and parameters of alipai, each with what it is here."""
    for module, names in NAMES.items():
        here = _module(module)
        if here is None or module == "pai.api":
            for name in names or [""]:
                yield Compared(module, name, _word(f"{module}.{name}".rstrip(".")))
            continue
        for name, alipais in names.items():
            own = getattr(here, name, _MISSING)
            yield _compared(module, name, own)
            if own is _MISSING or _is_left_out(own):
                continue
            if isinstance(alipais, list):
                yield from _parameters(module, name, alipais, own)
            for member, parameters in (alipais if isinstance(alipais, dict) else {}).items():
                yield from _member(module, name, member, parameters, own)


_MISSING = object()


def differing_positions() -> Iterator[tuple[str, str, str]]:
    """Yields calls whose values by position differ: the call, alipai's parameter, and ours at its position.

    Ours is empty where it is given by name.
    """
    for module, names in NAMES.items():
        here = _module(module)
        for name, alipais in names.items() if here is not None and module != "pai.api" else ():
            own = getattr(here, name, _MISSING)
            if own is _MISSING or _is_left_out(own) or hasattr(own, "model_fields"):  # pydantic takes none
                continue
            calls = {name: (alipais, own)} if isinstance(alipais, list) else {}
            for member, parameters in (alipais if isinstance(alipais, dict) else {}).items():
                method = own if member == "__init__" else getattr(own, member, None) or _alias(own, member)
                if parameters and callable(method):
                    calls[name if member == "__init__" else f"{name}.{member}"] = (parameters, method)
            for call, (parameters, method) in calls.items():
                yield from ((call, *each) for each in _differing(parameters, method))


def _differing(alipais: list[str], own: Any) -> Iterator[tuple[str, str]]:
    if isinstance(own, type) and own.__init__ is Exception.__init__:  # any parameters
        return
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ours = inspect.signature(own).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in ours):
        return
    names = [each.name for each in ours if each.kind in kinds and each.name not in ("self", "cls")]
    for alipai, name in zip_longest(alipais, names[: len(alipais)], fillvalue=""):
        if _ACCEPTED.get(alipai, alipai) != name:
            yield alipai, name


def _member(module: str, name: str, member: str, parameters: list[str] | None, own: Any) -> Iterator[Compared]:
    if member == "__init__":
        if not hasattr(own, "model_fields"):  # fields are members too
            yield from _parameters(module, name, parameters or [], own)
        return
    path = f"{name}.{member}"
    yield _compared(module, path, own if _has(own, member) else _MISSING)
    if parameters and (method := getattr(own, member, None) or _alias(own, member)) is not None:
        yield from _parameters(module, path, parameters, method)


def _parameters(module: str, path: str, alipais: list[str], own: Any) -> Iterator[Compared]:
    if isinstance(own, type) and own.__init__ is Exception.__init__:  # any parameters
        return
    ours = inspect.signature(own).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in ours.values()):
        return
    for name in alipais:
        is_there = name in ours or _ACCEPTED.get(name) in ours
        yield _compared(module, f"{path}({name}=)", own if is_there else _MISSING)


def _compared(module: str, name: str, own: Any) -> Compared:
    if _is_left_out(own):
        return Compared(module, name, f"replaced: {vars(own)['instead']}")
    path = f"{module}.{name}"
    only_says = key_of(path) == path  # it is there, and its use names the replacement
    return Compared(module, name, _word(path) if own is _MISSING or only_says else PRESENT)


def _word(name: str) -> str:
    attribute = name.removeprefix("pai.session.Session.")
    instead = SESSION_REPLACEMENTS[attribute] if attribute in SESSION_REPLACEMENTS else instead_of(name)
    kind = "absent" if key_of(name) in ABSENT else "replaced"
    return f"{kind}: {instead}" if instead else ""


def _module(name: str) -> Any:
    """The module of that name here; None where it only says what replaces it."""
    try:
        found = import_module(name.replace("pai", "pai_sdk", 1))
    except (ModuleNotFoundError, NotOfferedError):
        return None
    says_only = type(getattr(found, "__path__", None)).__name__ == "_NoModules" and not hasattr(found, "__all__")
    return None if says_only else found


def _is_left_out(found: Any) -> bool:
    return isinstance(found, type) and "instead" in vars(found)


def _alias(cls: Any, member: str) -> Any:
    """The member that stands in for a missing one."""
    tables = (vars(ALIASES[base.__name__]) for base in getattr(cls, "__mro__", ()) if base.__name__ in ALIASES)
    return next((table[member] for table in tables if member in table), None)


def _has(cls: Any, member: str) -> bool:
    """True if instances have it: as an attribute of the class, a field, or one that `__init__` sets."""
    return (
        hasattr(cls, member)
        or _alias(cls, member) is not None
        or member in getattr(cls, "model_fields", ())
        or (is_dataclass(cls) and member in {one.name for one in fields(cls)})
        or any(member in getattr(base, "__annotations__", ()) for base in getattr(cls, "__mro__", ()))
        or re.search(rf"\bself\.{member}\b.* = ", inspect.getsource(cls)) is not None
    )


# ---- the page -----------------------------------------------------------------------------------------------


def new_page(page: str) -> str:
    """The page with a new table between its markers."""
    before, _, rest = page.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{_table()}\n{_END}{rest.partition(_END)[2]}"


def _table() -> str:
    rows = ["| in alipai | here |", "|---|---|"]
    for module, found in groupby(compare(), key=lambda one: one.module):
        by_word: dict[str, list[str]] = {}
        for one in found:
            is_part = one.word == PRESENT and any(sign in one.name for sign in ".(")
            if not is_part:  # a name that is present is so with its parts, but for those of other lines
                by_word.setdefault(one.word, []).append(one.name)
        for word, names in by_word.items():
            shown = ", ".join(f"`{name}`" for name in _calls_joined(names) if name)
            rows.append(f"| `{module}`{': ' if shown else ''}{shown} | {_code(word)} |")
    return "\n".join(rows) + "\n"


def _calls_joined(names: list[str]) -> Iterator[str]:
    """The names, with the parameters of one call as one: `create(a=, b=)`."""
    for call, group in groupby(names, key=lambda name: name.partition("(")[0]):
        parameters = [name.partition("(")[2].rstrip(")") for name in group]
        yield f"{call}({', '.join(parameters)})" if parameters[0] else call


def _code(word: str) -> str:
    return word.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def main() -> None:
    """Write the page."""
    PAGE.write_text(new_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
