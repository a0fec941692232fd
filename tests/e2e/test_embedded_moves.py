"""A session outlives its embedded service, even when that comes up again on another port."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from pai_sdk import Processor, Session
from tests.support.leftovers import end_processes_of
from tests.support.service_process import wait_until_gone


@pytest.mark.timeout(600)
def test_a_session_finds_its_service_on_another_port(clean_home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('hello')")
    try:
        session = Session.embedded(data)
        processor = Processor(
            "none", "python3 train.py", source_dir=tmp_path / "src", instance_type="any", session=session
        )
        job = processor.run(show_logs=False)
        end_service_and_have_it_come_up_elsewhere(data)
        assert [line.text for line in job.logs()] == ["hello"]
        end_service_and_have_it_come_up_elsewhere(data)
        again = processor.run(show_logs=False)
        assert again.status == "Succeed"
    finally:
        end_processes_of(clean_home)


def end_service_and_have_it_come_up_elsewhere(data: Path) -> None:
    info = json.loads((data / "service.json").read_text())
    os.kill(info["pid"], signal.SIGKILL)
    wait_until_gone(info["pid"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # As if its last port had been that one: the service keeps the port that it reads here.
    (data / "service.json").write_text(json.dumps({**info, "endpoint": f"http://127.0.0.1:{port}"}))
