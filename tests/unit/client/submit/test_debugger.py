"""`Estimator(debugger=…)`: the variables of the job, and the package that its hook is imported from."""

from __future__ import annotations

from typing import Any

import pytest

from pai_sdk._client.code.job_package import CHANNEL
from pai_sdk._client.submit.estimator import Estimator
from pai_sdk.errors import InvalidInputError
from tests.unit.client.submit.test_submitting import FakeSession

pytestmark = pytest.mark.interpreter

HOOK = "pai_sdk.reports.wait_for_debugger"


def request(**values: Any) -> Any:
    values = {"command": ["python", "-c", "breakpoint()"], "instance_type": "ecs.c6.large", **values}
    session: Any = FakeSession()
    return Estimator("img", session=session, **values).plan().request


def channels(request: Any) -> list[str]:
    return [channel.name for channel in request.input_channels]


@pytest.mark.parametrize("form", ["terminal", "debugpy"])
def test_a_job_with_a_debugger_has_its_hook_and_the_package(form: str) -> None:
    described = request(debugger=form, environments={"A": "1"})
    assert described.environments == {"PYTHONBREAKPOINT": HOOK, "PAI_DEBUGGER": form, "A": "1"}
    assert channels(described) == [CHANNEL]
    assert "PYTHONPATH" in described.algorithm_spec.command[2]


def test_variables_of_the_user_come_first() -> None:
    described = request(debugger="terminal", environments={"PYTHONBREAKPOINT": "0", "PAI_DEBUGGER_WAIT_S": "60"})
    assert described.environments["PYTHONBREAKPOINT"] == "0"
    assert described.environments["PAI_DEBUGGER_WAIT_S"] == "60"


def test_the_variable_alone_brings_the_package() -> None:
    assert channels(request(environments={"PYTHONBREAKPOINT": HOOK})) == [CHANNEL]
    assert channels(request(environments={"PYTHONBREAKPOINT": "ipdb.set_trace"})) == []


def test_without_a_debugger_nothing_changes() -> None:
    described = request()
    assert (described.environments, channels(described)) == (None, [])


@pytest.mark.parametrize("value", ["pdb", "", True, 3])
def test_other_debuggers_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        request(debugger=value)
    assert [problem.where for problem in refused.value.problems] == ["debugger"]
