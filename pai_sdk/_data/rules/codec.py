"""Rules as JSON text, as they travel with a job and in configuration files; and rules merged with the defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from pai_sdk._core.names.hints import nearest, wrong_type
from pai_sdk._data.rules.rules import RULES, Rule
from pai_sdk.errors import InvalidInputError, Problem

WATCH_VARIABLE = "PAI_SDK_WATCH"
"""The environment variable of a job that has its rules, as JSON: it is valid in every API."""

_BY_CODE = {rule.code: rule for rule in RULES}


@dataclass(frozen=True)
class WatchConfig:
    """The rules of a service: those of all workspaces, and those of some.

    Attributes:
        default: rules that replace the default ones of their kind.
        workspaces: rules of a workspace by its id, which replace these.

    Example:
        >>> WatchConfig.parse({"workspaces": {"2": [{"rule": "IdleCpu", "enabled": False}]}}).rules("2")[-1].code
        'LateEnd'
    """

    default: tuple[Rule, ...] = ()
    workspaces: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: Any, where: str = "watch") -> WatchConfig:
        """Parses the content of a file; raises InvalidInputError."""
        if not isinstance(content, Mapping):
            hint = "such as {default: [{rule: NoProgress, min_s: 600}]}"
            raise InvalidInputError([wrong_type(where, content, "a mapping", hint)])
        unknown = [key for key in content if key not in ("default", "workspaces")]
        if unknown:
            hint = "available: default, workspaces"
            raise InvalidInputError([Problem(f"{where}.{unknown[0]}", "is no key of the rules", hint)])
        workspaces = content.get("workspaces") or {}
        if not isinstance(workspaces, Mapping):
            raise InvalidInputError([wrong_type(f"{where}.workspaces", workspaces, "a mapping of ids to rules")])
        by_id = {
            str(workspace_id): parse_rows(rows, f"{where}.workspaces[{workspace_id}]")
            for workspace_id, rows in workspaces.items()
        }
        return cls(parse_rows(content.get("default") or [], f"{where}.default"), by_id)

    def rules(self, workspace_id: str, variables: Mapping[str, str] | None = None) -> tuple[Rule, ...]:
        """Returns the rules of a job, by its workspace and its environment variables."""
        of_workspace = self.workspaces.get(workspace_id, ())
        return merged(default_rules(), self.default, of_workspace, rules_of_variables(variables))


def default_rules() -> tuple[Rule, ...]:
    """Returns all rules with their default thresholds."""
    return tuple(rule() for rule in RULES)


def merged(*layers: Sequence[Rule]) -> tuple[Rule, ...]:
    """Returns one rule of each kind, from the last layer that has it; disabled ones are left out."""
    by_code: dict[str, Rule] = {}
    for layer in layers:
        by_code |= {rule.code: rule for rule in layer}
    return tuple(rule for rule in by_code.values() if rule.enabled)


def rules_text(watch: Sequence[Rule] | bool) -> str:
    """Formats the rules of a job; only values that are not the defaults. False switches all rules off."""
    if watch is False:
        watch = [rule(enabled=False) for rule in RULES]
    elif watch is True:
        watch = []
    return json.dumps([_row(rule) for rule in watch], separators=(",", ":"))


def _row(rule: Rule) -> dict[str, Any]:
    changed = {f.name: getattr(rule, f.name) for f in fields(rule) if getattr(rule, f.name) != f.default}
    return {"rule": rule.code, **changed}


def parse_rules(text: str, where: str = WATCH_VARIABLE) -> tuple[Rule, ...]:
    """Parses rules from JSON.

    Raises:
        InvalidInputError: it is not JSON, or a rule or value is not valid; all problems at once.
    """
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(
            [Problem(where, f"is not JSON: {error}", 'such as [{"rule": "NoProgress"}]')]
        ) from None
    return parse_rows(rows, where)


def parse_rows(rows: Any, where: str) -> tuple[Rule, ...]:
    """Parses a list of mappings, or raises InvalidInputError with all problems."""
    if not isinstance(rows, list):
        raise InvalidInputError([wrong_type(where, rows, "a list of rules", 'such as [{"rule": "NoProgress"}]')])
    rules, problems = list[Rule](), list[Problem]()
    for number, row in enumerate(rows):
        try:
            rules.append(parse_rule(row, f"{where}[{number}]"))
        except InvalidInputError as error:
            problems += error.problems
    if problems:
        raise InvalidInputError(problems)
    return tuple(rules)


def parse_rule(row: Any, where: str) -> Rule:
    """Parses one rule from a mapping; raises InvalidInputError."""
    if not isinstance(row, Mapping):
        raise InvalidInputError([wrong_type(where, row, "a mapping", 'such as {"rule": "NoProgress"}')])
    if "rule" not in row:
        raise InvalidInputError([Problem(f"{where}.rule", "is missing", f"one of: {', '.join(_BY_CODE)}")])
    code = str(row["rule"])
    kind = _BY_CODE.get(code)
    if kind is None:
        near = nearest(code, _BY_CODE)
        hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(_BY_CODE)}"
        raise InvalidInputError([Problem(f"{where}.rule", f"{code!r} is no rule", hint)])
    names = {f.name for f in fields(kind)}
    unknown = [name for name in row if name != "rule" and name not in names]
    if unknown:
        hint = f"available: {', '.join(sorted(names))}"
        raise InvalidInputError(
            [Problem(f"{where}.{name}", f"{code} has no such value", hint) for name in unknown]
        )
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items() if name != "rule"
    }
    try:
        return kind(**values)
    except InvalidInputError as error:
        raise InvalidInputError([Problem(f"{where}.{p.where}", p.what, p.hint) for p in error.problems]) from None


def rules_of_variables(variables: Mapping[str, str] | None) -> tuple[Rule, ...]:
    """Returns the rules in the environment variables of a job; none if they are not valid."""
    text = (variables or {}).get(WATCH_VARIABLE)
    if not text:
        return ()
    try:
        return parse_rules(text)
    except InvalidInputError:  # refused at submission by this package; other clients can send anything
        return ()
