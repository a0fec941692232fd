"""Services in processes of their own: started, found, killed, taken up again."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

import pai_sdk
from pai_sdk._core.endpoint import with_scheme
from pai_sdk._service.embedded import ensure_running, find_running, stop_running
from pai_sdk._service.http import listening
from pai_sdk._service.server import Service
from pai_sdk._service.settings import Pace, ServiceInfo, ServiceSettings
from pai_sdk._service.state import folder
from pai_sdk._service.state.folder import DataFolder, Keys
from pai_sdk.errors import ServiceStartError
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, keep_to_a_quiet_port
from tests.service.web.browsing import ask_as_browser, sign_in
from tests.support.leftovers import has_ended
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A folder whose service, if one was started, is ended with the test."""
    folder = tmp_path / "a service's data"
    yield folder
    if (folder / "service.json").exists():
        pid = json.loads((folder / "service.json").read_text())["pid"]
        if pid not in (0, os.getpid()):
            with suppress(psutil.NoSuchProcess):  # it has ended by itself
                psutil.Process(pid).kill()


def running(folder: Path) -> ServiceInfo:
    """The service there; it may take as long as a busy machine needs."""
    return ensure_running(folder, timeout_s=PATIENCE_S)


def end(info: ServiceInfo, number: int) -> None:
    os.kill(info.pid, number)
    until(lambda: has_ended(info.pid), "its end")


def test_it_starts_once_and_is_found_again(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "cloud secret")
    found: list[ServiceInfo] = []
    threads = [threading.Thread(target=lambda: found.append(running(data_dir))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(found) == len(threads)
    assert len({info.pid for info in found}) == 1
    info = found[0]
    assert running(data_dir) == info
    assert info.pid != os.getpid()
    assert os.getsid(info.pid) == info.pid  # it does not end with our terminal
    assert "ALIBABA_CLOUD_ACCESS_KEY_SECRET" not in psutil.Process(info.pid).environ()
    for name, mode in ((".", 0o700), ("service.json", 0o600), ("service.log", 0o600)):
        assert stat.S_IMODE((data_dir / name).stat().st_mode) == mode
    assert info.access_key_secret not in (data_dir / "service.log").read_text()
    assert info.access_key_secret not in repr(info)
    assert json.loads(info.to_json())["access_key_secret"] == info.access_key_secret


def test_kill_nine_in_the_middle_of_a_job_loses_nothing(data_dir: Path) -> None:
    keep_to_a_quiet_port(data_dir)
    before = running(data_dir)
    client = Client(before)
    command = (
        'for i in $(seq 1 25); do echo loss=$i; sleep 0.05; done; echo done > "$PAI_OUTPUT_MODEL/m"; echo bye'
    )
    uri = f"oss://{before.bucket}/out/"
    job_id = client.create(
        job_body(
            command,
            AlgorithmSpec={"MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9]+)"}]},
            OutputChannels=[{"Name": "model", "OutputUri": uri}],
        )
    )
    client.until(job_id, "Running")
    until(lambda: len(client.log(job_id)) >= 10)
    end(before, signal.SIGKILL)
    after = running(data_dir)
    assert (after.endpoint, after.access_key_id, after.access_key_secret) == (
        before.endpoint,
        before.access_key_id,
        before.access_key_secret,
    )
    assert after.pid != before.pid
    client = Client(after)
    job = client.until(job_id)
    assert job["Status"] == "Succeed"
    assert client.log(job_id)[-26:] == [*(f"loss={n}" for n in range(1, 26)), "bye"]
    metrics = client.get(f"/trainingjobs/{job_id}/metrics", PageSize=1000)["Metrics"]
    assert [metric["Value"] for metric in metrics] == list(range(1, 26))
    assert client.bucket().get_object("out/m").read() == b"done\n"
    end(after, signal.SIGTERM)


def test_what_keeps_it_from_starting_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceStartError, match="cannot be used"):
        ensure_running(tmp_path / "file")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "service.db").write_text("no database, but long enough to be read as one")
    with pytest.raises(
        ServiceStartError,
        match=r"exit code 1.*\n.*\n.* the database .* cannot be used: file is not a database$",
    ):
        running(broken)


def test_a_service_that_takes_seconds_to_respond_is_found_and_one_that_was_killed_is_not(data_dir: Path) -> None:
    """As on a machine with a load of 30, where commands said that no service runs there."""
    info = running(data_dir)
    os.kill(info.pid, signal.SIGSTOP)
    awake = threading.Timer(4, os.kill, (info.pid, signal.SIGCONT))
    awake.start()
    assert find_running(data_dir) == info
    awake.join()
    end(info, signal.SIGKILL)
    assert find_running(data_dir) is None


def test_a_silent_holder_of_the_folder_is_given_up_in_time(data_dir: Path) -> None:
    data_dir.mkdir()
    with (data_dir / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ServiceStartError, match="does not respond in time"):
            ensure_running(data_dir, timeout_s=0.5)


def test_two_services_on_one_folder_are_refused(start: Callable[..., Any], tmp_path: Path) -> None:
    with (
        start(ScriptedExecutor()),
        pytest.raises(ServiceStartError, match="another service already runs"),
    ):
        Service(ServiceSettings(data_dir=tmp_path / "data")).run()


def test_a_client_that_looks_for_long_does_not_keep_it_from_starting(tmp_path: Path) -> None:
    """As one that is stopped by a busy machine between its look and its next step."""
    (tmp_path / "data").mkdir()
    looks = (tmp_path / "data" / "lock").open("w")
    fcntl.flock(looks, fcntl.LOCK_SH)
    done = threading.Timer(0.2, looks.close)
    done.start()
    with DataFolder(tmp_path / "data", handover_s=0.0, client_check_s=PATIENCE_S):
        assert folder.is_locked(tmp_path / "data")
    done.join()


def test_a_folder_is_free_at_once_whoever_was_just_forked(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as held:
        copy = os.dup(held._lock or 0)  # as a process has that another thread has just begun
    try:
        assert not folder.is_locked(tmp_path)
        with DataFolder(tmp_path):
            assert folder.is_locked(tmp_path)
    finally:
        os.close(copy)


def test_keys_and_port_stay_unless_told_otherwise(start: Callable[..., Any], tmp_path: Path) -> None:
    executor, port = ScriptedExecutor(), keep_to_a_quiet_port(tmp_path / "data")
    with start(executor) as client:
        first = client.info
        assert first.endpoint == f"http://127.0.0.1:{port}"
    with start(executor) as client:
        assert client.info == first
    impatient = Pace(last_port_wait_s=0.2)
    with socket.create_server(("127.0.0.1", port)), start(executor, pace=impatient) as client:
        assert client.info.endpoint != first.endpoint  # another process has taken the port meanwhile
        assert client.info.access_key_secret == first.access_key_secret
    with start(executor, access_key_id="mine", access_key_secret="my-own-secret") as client:
        assert client.info.access_key_id == "mine"
        assert client.get("/workspaces")["TotalCount"] == 1


@pytest.mark.parametrize(
    ("host", "told"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "localhost")],
)
def test_clients_are_told_a_host_that_they_can_use(tmp_path: Path, host: str, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings, port = ServiceSettings(tmp_path, host=host), listener.getsockname()[1]
        info = listening.info_of(
            settings, DataFolder(tmp_path), Keys("id", "secret"), listener, ScriptedExecutor.capabilities
        )
    assert with_scheme(info.oss_endpoint) == info.endpoint == f"http://{told}:{port}"


def test_the_last_port_is_waited_for(start: Callable[..., Any], tmp_path: Path) -> None:
    port = keep_to_a_quiet_port(tmp_path / "data")
    holder = socket.create_server(("127.0.0.1", port))
    gives_up = threading.Timer(0.3, holder.close)
    gives_up.start()
    with start(ScriptedExecutor(), pace=Pace(last_port_wait_s=PATIENCE_S)) as client:
        assert client.info.endpoint == f"http://127.0.0.1:{port}"
    gives_up.join()


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_it_ends_when_its_folder_is_taken_away(data_dir: Path, how: str) -> None:
    command = [sys.executable, "-m", "pai_sdk._service", "--data", str(data_dir)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert any(" serving http://" in line for line in iter(process.stderr.readline, ""))
        if how == "deleted":  # again and again: it may still be making files
            until(lambda: shutil.rmtree(data_dir, ignore_errors=True) or not data_dir.exists())
        else:
            data_dir.rename(data_dir.with_name("elsewhere"))
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == f"the service on {data_dir} stops: its data folder was deleted or moved"
    assert errors.count(" stops: ") == 1


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(start: Callable[..., Any], tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(ServiceStartError, match="choose another port"),
    ):
        Service(ServiceSettings(data_dir=tmp_path / "data", port=other.getsockname()[1])).run()


def test_it_ends_with_success_on_sigterm(data_dir: Path) -> None:
    command = [sys.executable, "-m", "pai_sdk._service", "--data", str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until((data_dir / "service.json").exists)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert out == b""


def written_down(data_dir: Path, **facts: Any) -> None:
    """Let the running service say something else of itself."""
    file = data_dir / "service.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **facts}))


def test_an_embedded_service_of_an_older_release_is_replaced_and_its_jobs_go_on(data_dir: Path) -> None:
    before = running(data_dir)
    client = Client(before)
    job_id = client.create(job_body("until [ -e $PAI_OUTPUT_MODEL/go ]; do sleep 0.1; done; echo went on"))
    client.until(job_id, "Running")
    written_down(data_dir, version="0.0.9")
    after = running(data_dir)
    assert has_ended(before.pid)
    assert (after.pid != before.pid, after.version, after.embedded) == (True, pai_sdk.__version__, True)
    assert (after.endpoint, after.access_key_id) == (before.endpoint, before.access_key_id)
    assert running(data_dir).pid == after.pid
    client = Client(after)
    assert client.call("PUT", f"/trainingjobs/{job_id}/stop").status_code == 200
    assert client.until(job_id)["Status"] == "Terminated"


@pytest.mark.parametrize("facts", [{"version": "999.0"}, {"version": "0.0.9", "embedded": False}])
def test_a_newer_service_and_one_that_a_person_started_are_used_as_they_are(
    data_dir: Path, facts: dict[str, Any]
) -> None:
    before = running(data_dir)
    written_down(data_dir, **facts)
    assert running(data_dir).pid == before.pid


def test_a_service_that_does_not_stop_is_an_error(data_dir: Path) -> None:
    service = running(data_dir)
    written_down(data_dir, version="0.0.9")
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as deaf:
        try:
            assert deaf.stdout is not None
            deaf.stdout.readline()
            written_down(data_dir, pid=deaf.pid)
            with pytest.raises(ServiceStartError, match=f"process {deaf.pid}.* does not end"):
                stop_running(data_dir, timeout_s=0.1)
            with pytest.raises(ServiceStartError, match=f"process {deaf.pid}.* cannot replace it"):
                ensure_running(data_dir, timeout_s=2.0)
            assert deaf.poll() is None
        finally:
            deaf.kill()
            written_down(data_dir, pid=service.pid)
    stopped = stop_running(data_dir)
    assert stopped is not None
    assert stopped.pid == service.pid
    until(lambda: has_ended(service.pid), "its end")
    assert stop_running(data_dir) is None


def test_nothing_is_put_into_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ServiceStartError, match="not empty and not a service's"):
        running(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_session_that_is_dropped_leaves_no_descriptor(data_dir: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(50):
        (source / f"file-{number}").write_bytes(b"x" * 100)

    def use() -> None:
        session = pai_sdk.Session.embedded(data_dir)
        assert session.upload(source, "oss://pai-local/x/", progress=False)
        assert [*session.list_jobs()] == []

    gc.collect()
    gc.disable()  # it must not be needed
    try:
        use()
        before = sockets()
        for _ in range(3):
            use()
        assert sockets() <= before
    finally:
        gc.enable()


def test_a_page_stays_signed_in_when_the_service_was_killed(data_dir: Path) -> None:
    session = pai_sdk.Session.embedded(data_dir)
    info = running(data_dir)
    assert repr(session) == f"<Session local workspace=1 bucket=pai-local page={info.endpoint}/ui/>"
    port = urlsplit(info.endpoint).port
    assert port is not None
    page = sign_in(port, session.new_page_link())
    end(info, signal.SIGKILL)
    assert running(data_dir).endpoint == info.endpoint
    about = ask_as_browser(port, "GET", "/ui/about", **page)
    assert (about.status, about.json["command"]) == (200, f"pai-sdk ui --data {shlex.quote(str(data_dir))}")
    assert about.json["place"].startswith("embedded service on ")


def sockets() -> int:
    found = 0
    for name in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += str(name.readlink()).startswith("socket:")
    return found
