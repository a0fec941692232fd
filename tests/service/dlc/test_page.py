"""The page on the API of DLC names each action and each field of CreateJob, once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from pai_sdk._wire.dlc.actions import ACTIONS
from pai_sdk._wire.dlc.job_specs import JobSpec
from pai_sdk._wire.dlc.jobs import NewJob

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "service-dlc.md").read_text(encoding="utf-8")
ONLY_OF_OLDER_CLIENTS = "BatchGetJobsStatistics"


def names(after: str) -> list[str]:
    """What the first column of a table names."""
    table = PAGE.split(after, 1)[1].split("|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return [name for line in table.splitlines() for name in re.findall(r"[A-Za-z]+", line.split("|")[1])]


def test_the_table_of_actions_is_complete() -> None:
    assert sorted(names("## Actions")) == sorted([*ACTIONS, ONLY_OF_OLDER_CLIENTS])


@pytest.mark.parametrize(("heading", "model"), [("## Fields of CreateJob", NewJob), ("Of a role in", JobSpec)])
def test_the_tables_of_fields_are_complete(heading: str, model: type[BaseModel]) -> None:
    model.model_rebuild()
    assert sorted(names(heading)) == sorted(field.alias or name for name, field in model.model_fields.items())
