"""Functions as local jobs: in an image that has nothing but Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Session, remote
from pai_sdk.errors import FunctionError, RemoteTraceback
from tests.docker.engine import BASE_IMAGE, Engine
from tests.e2e.test_functions import killed_and_resumed_as_a_job
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the base image has Python 3.11")


@pytest.fixture
def session(docker_host: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("PAI_LOCAL_DIR", str(tmp_path / "local"))
    return Session("cn-x", "7")


def test_a_call_in_a_container_gives_its_value(session: Session) -> None:
    @remote(instance_type="local", image_uri=BASE_IMAGE, session=session, show_logs=False)
    def train(lr: float) -> dict[str, Any]:
        import cloudpickle

        if lr > 1:
            raise ArithmeticError(lr)
        return {"lr": lr, "cloudpickle": cloudpickle.__file__}

    job = train.submit(lr=0.5)
    assert job.result(PATIENCE_S) == {
        "lr": 0.5,
        "cloudpickle": "/ml/usercode/_pai_function/cloudpickle/__init__.py",
    }
    with pytest.raises(ArithmeticError) as caught:
        train(lr=2)
    assert isinstance(caught.value.__cause__, RemoteTraceback)


def test_killed_and_resumed_in_containers(session: Session, tmp_path: Path) -> None:
    killed_and_resumed_as_a_job(tmp_path / "found", session=session, instance_type="local", image_uri=BASE_IMAGE)


def test_another_python_is_refused_by_the_job(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    @remote(instance_type="local", image_uri=BASE_IMAGE, session=session, show_logs=False)
    def train() -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (3, 7, 0))
        job = train.submit()
    with pytest.raises(FunctionError, match=r"was pickled by Python 3\.7"):
        job.result(PATIENCE_S)
