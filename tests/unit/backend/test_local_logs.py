"""The log of a local job: read to its last byte, however close to the end that was written; and what is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.backend.local.watching import LocalLogs, metric_values
from pai_sdk.execution.contract import instances
from pai_sdk.schemas.request import TrainingJobRequest

LAST = b"ValueError: the reason, \xff and \xe6\x8d"


@pytest.mark.parametrize("wait_s", [0.0, 10.0])
def test_what_is_written_while_the_end_is_found_out_is_still_read(tmp_path: Path, wait_s: float) -> None:
    log, logs, looks = tmp_path / "log", LocalLogs(), iter([True, True])
    log.write_bytes(b"begun\n")

    def is_open() -> bool:
        if next(looks, False):
            return True
        if not log.read_bytes().endswith(LAST):
            with log.open("ab") as writing:
                writing.write(b"epoch 1\n" + LAST)
        return False

    first = logs.read(log, 0, 100, wait_s=wait_s, is_open=is_open)
    assert (first.lines, first.complete) == (("begun",), False)
    lines = list(first.lines)
    while not (page := logs.read(log, len(lines), 100, wait_s=wait_s, is_open=is_open)).complete:
        lines += page.lines
    assert [*lines, *page.lines] == ["begun", "epoch 1", LAST.decode(errors="replace")]


def test_metrics_are_found_in_the_logs_of_all_instances(tmp_path: Path) -> None:
    request = TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "n",
            "AlgorithmSpec": {
                "Image": "i",
                "Command": ["c"],
                "MetricDefinitions": [
                    {"Name": "loss", "Regex": r"loss=(\S+)"},
                    {"Name": "acc", "Regex": r"acc=(?:about )?([0-9.]+)"},
                ],
            },
            "ComputeResource": {"EcsSpec": "local", "EcsCount": 3},
        }
    )
    sandbox = Sandbox(tmp_path)
    sandbox.create(request)
    first, second, _ = (sandbox.log_file(instance.name) for instance in instances("t", request))
    first.write_bytes(b"loss=1.5 acc=0.1\n\rloss=1e-2\rloss=soon \xff\nloss=3 loss=4")
    second.write_bytes(b"acc=about 0.7\n")

    def found(name: str | None) -> list[tuple[str | None, float | None]]:
        return [(point.name, point.value) for point in metric_values(sandbox, "t", request, name=name)]

    assert found("loss") == [("loss", 1.5), ("loss", 0.01), ("loss", 3.0), ("loss", 4.0)]
    assert found(None)[:2] == [("loss", 1.5), ("acc", 0.1)]
    assert found("acc") == [("acc", 0.1), ("acc", 0.7)]
    assert found("nothing") == []
