"""Commands in all instances of a job."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import TunnelClosedError
from tests.support.waiting import PATIENCE_S


class WaitingTunnel:
    """A tunnel whose program runs until the tunnel is abandoned."""

    instance = "t-1-worker-0"

    def __init__(self, entered: threading.Barrier) -> None:
        self._entered = entered
        self._ended = threading.Event()
        self.abandon = self._ended.set

    def __enter__(self) -> WaitingTunnel:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def explain_end(self, explain: object) -> None:
        pass

    def open(self, kind: str, **parameters: object) -> None:
        self._entered.wait(PATIENCE_S)
        assert self._ended.wait(PATIENCE_S)
        raise TunnelClosedError("Closed", "the tunnel was closed")


def test_an_interrupt_is_not_reported_as_an_error_of_each_rank(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    entered = threading.Barrier(3)

    def interrupt(*_: object) -> None:
        entered.wait(PATIENCE_S)
        raise KeyboardInterrupt

    monkeypatch.setattr("pai_sdk._client.job.entering.wait", interrupt)
    backend = SimpleNamespace(connect_tunnel=lambda *_, **__: WaitingTunnel(entered))
    names = ("t-1-worker-0", "t-1-worker-1")
    record = SimpleNamespace(
        status=JobStatus.RUNNING, instance_names=names, training_job_id="t-1", status_transitions=()
    )
    with pytest.raises(KeyboardInterrupt):
        EnteredJob(backend, record).exec_all(["sleep", "60"])  # type: ignore[arg-type]
    assert capfd.readouterr().err == ""
