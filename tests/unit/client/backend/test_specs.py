"""The kind of backend is selected by an instance type, or by the prefix of a job id."""

from __future__ import annotations

import pytest

from pai_sdk._client.backend.specs import backend_for_job, backend_for_type


@pytest.mark.parametrize(
    ("instance_type", "name"),
    [("local", "local"), ("local_gpu", "local"), ("ecs.c6.large", "service"), (None, "service")],
)
def test_an_instance_type_selects_the_backend(instance_type: str | None, name: str) -> None:
    assert backend_for_type(instance_type).name == name


@pytest.mark.parametrize(
    ("job_id", "name"), [("local-08655612a521", "local"), ("train129f212o89d", "service"), (None, "service")]
)
def test_a_job_id_shows_the_backend(job_id: str | None, name: str) -> None:
    assert backend_for_job(job_id).name == name
