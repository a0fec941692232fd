"""In what two jobs differ: what was asked for, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from pai_sdk.display.base import duration_text
from pai_sdk.job.facts import job_facts
from pai_sdk.schemas.hyperparameters import compare_hyperparameters, mask_hyperparameters
from pai_sdk.schemas.record import JobRecord

__all__ = ["Difference", "differences"]


@dataclass(frozen=True)
class Difference:
    """One thing in which two jobs differ.

    Attributes:
        group: `code`, `hyperparameters`, `inputs`, …, or `result`.
        name: within the group.
        first: of the first job; None where it has none.
        second: of the second one.
    """

    group: str
    name: str
    first: str | None
    second: str | None


def differences(first: JobRecord, second: JobRecord) -> list[Difference]:
    """All differences of two jobs, groups in their order. Values of variables are compared, and masked.

    Args:
        first: a job.
        second: another one. Output folders that differ only in the name of the job count as the same.

    Example:
        >>> a, b = (JobRecord.model_validate({"TrainingJobId": f"train{lr}", "Status": "Succeed",
        ...     "HyperParameters": [{"Name": "lr", "Value": lr}]}) for lr in ("0.1", "0.2"))
        >>> differences(a, b)
        [Difference(group='hyperparameters', name='lr', first='0.1', second='0.2')]
    """
    ours, theirs = _all_facts(first), _all_facts(second)
    found = [
        Difference(*key, ours.get(key), theirs.get(key))
        for key in {**ours, **theirs}
        if key[0] != "hyperparameters"
        and _same_in_both(ours.get(key), first) != _same_in_both(theirs.get(key), second)
    ]
    return sorted(
        [*found, *_hyperparameters(first, second), *_environments(first, second)],
        key=lambda one: _ORDER.get(one.group, len(_ORDER)),
    )


_ORDER = {
    name: place
    for place, name in enumerate(
        (
            "code",
            "resources",
            "hyperparameters",
            "inputs",
            "outputs",
            "environments",
            "labels",
            "settings",
            "result",
        )
    )
}


def _all_facts(record: JobRecord) -> dict[tuple[str, str], str]:
    facts = {(group, name): text for group, found in job_facts(record).items() for name, text in found.items()}
    facts["result", "status"] = record.status
    if record.status.is_terminal and record.duration is not None:
        facts["result", "duration"] = duration_text(record.duration)
    if record.reason_message and record.status.is_failure:
        facts["result", "reason"] = record.reason_message
    for metric in record.latest_metrics:
        if metric.name and metric.value is not None:
            facts["result", f"metric {metric.name}"] = f"{metric.value:g}"
    return facts


def _same_in_both(text: str | None, record: JobRecord) -> str | None:
    """The text, without what is different in every job."""
    for own in (record.training_job_name, record.training_job_id):
        if text and own:
            text = text.replace(own, "…")
    return text


def _hyperparameters(first: JobRecord, second: JobRecord) -> list[Difference]:
    """Those that differ. Values of secrets are compared, and shown as masks."""
    rows = [{name: text or "" for name, text in one.hyperparameter_values.items()} for one in (first, second)]
    pairs = [*zip(rows, (first, second), strict=True)]
    alike = [{name: _same_in_both(text, record) for name, text in row.items()} for row, record in pairs]
    ours, theirs = map(mask_hyperparameters, rows)
    return [
        Difference("hyperparameters", name, ours.get(name), theirs.get(name))
        for name in compare_hyperparameters(alike).differing
    ]


def _environments(first: JobRecord, second: JobRecord) -> list[Difference]:
    """Variables that both have, with different values."""
    ours, theirs = first.environments or {}, second.environments or {}
    return [
        Difference("environments", name, "one value", "another value")
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]
