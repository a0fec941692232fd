"""The findings of rules about one job, in a file of its folder: what was observed, when, with the evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from pai_sdk._core.files import open_plain, replace_file
from pai_sdk._data.rules.codec import WatchConfig
from pai_sdk._data.rules.rules import Rule
from pai_sdk._data.rules.signals import Finding
from pai_sdk._wire.run_jobs import RuleFinding, WatchingRule

_FILE = "findings.json"
_MAX_FINDINGS = 50
_MAX_LINES = 20  # of evidence
_MAX_POINTS = 20


def record_finding(folder: Path, finding: Finding, *, attempt: int, now: float) -> None:
    """Adds a finding to the file of a job, or marks the open one as cleared; for one thread only."""
    rows = _rows(folder)
    same = [
        row for row in rows if (row["code"], row["key"], row["attempt"]) == (finding.code, finding.key, attempt)
    ]
    is_open = any(row["cleared_at"] is None for row in same)
    # A service that was killed after it recorded the finding raises it again.
    if finding.status == "raised" and not is_open:
        row = {"code": finding.code, "key": finding.key, "attempt": attempt, "since": now, "cleared_at": None}
        rows.append({**row, "message": finding.message, "instance": finding.instance, **_evidence(finding)})
    for row in same:
        if finding.status == "cleared" and row["cleared_at"] is None:
            row["cleared_at"] = now
    with suppress(OSError):  # a full disk, or a deleted job: the event has the message
        replace_file(folder / _FILE, json.dumps(rows[-_MAX_FINDINGS:]), draft=folder / f".{_FILE}")


def rules_of_job(
    config: WatchConfig, folder: Path, workspace_id: str, variables: Mapping[str, str] | None, attempt: int | None
) -> list[WatchingRule]:
    """Returns the rules that watch a job, with their findings; those with an open one first.

    `attempt` is the running one: findings of others, and of a job that does not run (None), are past.
    """
    rows = _rows(folder)
    rules = [
        WatchingRule(
            code=rule.code,
            action=rule.action,
            settings=_settings(rule),
            findings=[_finding(row, attempt) for row in reversed(rows) if row["code"] == rule.code],
        )
        for rule in config.rules(workspace_id, variables)
    ]
    return sorted(rules, key=lambda rule: (not any(each.is_open for each in rule.findings), not rule.findings))


def _rows(folder: Path) -> list[dict[str, Any]]:
    try:
        with open_plain(folder / _FILE) as file:
            rows = json.load(file)
    except (OSError, ValueError, RecursionError):  # none yet, or of another program
        return []
    return [row for row in rows if _is_valid(row)] if isinstance(rows, list) else []


def _is_valid(row: Any) -> bool:
    try:
        return isinstance(row["code"], str) and "key" in row and _finding(row, None) is not None
    except (ValueError, KeyError, TypeError, OverflowError):
        return False


def _settings(rule: Rule) -> dict[str, Any]:
    common = {each.name for each in fields(Rule)}
    return {each.name: getattr(rule, each.name) for each in fields(rule) if each.name not in common}


def _finding(row: Mapping[str, Any], attempt: int | None) -> RuleFinding:
    is_open = row["cleared_at"] is None and row["attempt"] == attempt
    return RuleFinding(**{name: row[name] for name in RuleFinding.model_fields if name in row}, is_open=is_open)


def _evidence(finding: Finding) -> dict[str, Any]:
    """Returns the evidence that a page has room for; a snapshot has all of it."""
    evidence = finding.evidence
    lines: Mapping[str, Sequence[str]] = evidence.get("last_lines", {})
    first = next(iter(lines), "")
    stacks: Sequence[Mapping[str, Any]] = evidence.get("stacks", ())
    stack = next((each for each in stacks if each.get("is_odd")), next(iter(stacks), {}))
    return {
        "lines": [*lines.get(finding.instance or first, lines.get(first, ()))][-_MAX_LINES:],
        "stack": [*stack.get("frames", ())][:_MAX_LINES],
        "points": [*evidence.get("curve", ())][-_MAX_POINTS:],
        "values": {name: value for name, value in evidence.items() if isinstance(value, (int, float, str))},
    }
