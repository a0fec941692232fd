"""The program that is shown for a submission makes the same request."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from pai_sdk import Estimator, Secret, Session
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk.alipai.dlc.flags import read_submission
from pai_sdk.alipai.dlc.scripts import read_script
from pai_sdk.jobs import DlcOptions
from tests.unit.cli.dlc.test_same_bodies import LINES


@pytest.fixture
def session() -> Iterator[Session]:
    with Session("cn-x", "1", oss_bucket_name="bucket", access_key_id="a", access_key_secret="b") as session:
        yield session


@pytest.mark.parametrize("line", LINES)
def test_the_request_is_the_same(line: str, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "p")
    submission = read_submission(["submit", *shlex.split(line)], {})
    assert submission is not None
    original = received(NewJob, submission.body)
    [suggestion] = read_script(f"dlc submit {line}")
    job = received(NewJob, body_of(suggestion.code, session))
    for name in (
        "display_name",
        "job_type",
        "resource_id",
        "priority",
        "user_vpc",
        "success_policy",
        "workspace_id",
    ):
        assert getattr(job, name) == getattr(original, name), name
    assert job.job_max_running_time_minutes == original.job_max_running_time_minutes
    assert specs(job) == specs(original)
    assert job.user_command is not None
    assert job.user_command.endswith(original.user_command or "")
    assert job.envs.items() >= original.envs.items()
    assert job.thirdparty_libs == original.thirdparty_libs
    assert settings(job) == settings(original)
    mounts = [each for each in job.data_sources if not (each.mount_path or "").startswith("/ml/")]
    assert [each.model_copy(update={"mount_access": None}) for each in mounts] == original.data_sources
    assert job.code_source == original.code_source


def body_of(code: str, session: Session) -> dict[str, Any]:
    """Runs a program up to its plan."""
    code = re.sub(r"^(from pai_sdk.*|setup_default_session.*|print.*)$", "", code, flags=re.MULTILINE)
    code = re.sub(
        r"^job = estimator.fit\((.*?),? ?wait=\w+\)$", r"plan = estimator.plan(\1)", code, flags=re.MULTILINE
    )
    names: dict[str, Any] = {"DlcOptions": DlcOptions, "Secret": Secret}
    names["Estimator"] = lambda **arguments: Estimator(**arguments, session=session)
    exec(code, names)
    body: dict[str, Any] = names["plan"].body
    return body


def specs(job: NewJob) -> list[dict[str, Any]]:
    """The roles; a master that is like the workers is one of them."""
    written = [each.to_wire() for each in job.job_specs]
    for spec in written:
        spec.get("ImageConfig", {}).pop("Password", None)
    types = [spec["Type"] for spec in written]
    if types == ["Master", "Worker"]:
        written[1]["PodCount"] += written[0]["PodCount"]
        return written[1:]
    return written


def settings(job: NewJob) -> dict[str, Any]:
    values = {} if job.settings is None else job.settings.to_wire()
    values.pop("EnableOssAppend", None)
    values["Tags"] = {key: value for key, value in values.get("Tags", {}).items() if not key.startswith("pai-sdk")}
    return values
