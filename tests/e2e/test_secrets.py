"""Secrets are planted everywhere, jobs are run with everything told that can be told, and then we search."""

from __future__ import annotations

import io
import logging
import os
import pickle
import stat
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pai_sdk import Processor, Session
from pai_sdk._service.embedded import ensure_running
from pai_sdk._service.state.folder import read_info
from pai_sdk.errors import JobFailed
from tests.support.service_process import end_service
from tests.support.waiting import PATIENCE_S

VARIABLE = "planted-in-a-variable"
INDEX_PASSWORD = "planted-in-an-index-url"
SETTING = "planted-in-the-callers-environment"

# Where a secret may lie, by where it was given. Nobody but the owner can look into the data folder.
MAY_HOLD = {
    VARIABLE: {"plan.json", "service.db", "service.db-wal", "jobs/*/state/job.json"},
    INDEX_PASSWORD: {"plan.json", "service.db", "service.db-wal", "jobs/*/state/requirements-of-request.txt"},
    SETTING: set[str](),
    "the key": {"service.json"},
}


@pytest.fixture
def service_dir(clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A service whose owner lets everybody read what he writes."""
    (clean_home / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(clean_home / "tmp"))
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_TIMEOUT", "1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SETTING)
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", SETTING)
    monkeypatch.setenv("PAI_SERVICE_DATABASE_PASSWORD", SETTING)
    folder = clean_home / ".pai" / "service"
    before = os.umask(0)
    try:
        ensure_running(folder)
        yield folder
        end_service(folder)
    finally:
        os.umask(before)


@pytest.mark.timeout(600)
def test_secrets_stay_where_they_belong(
    service_dir: Path, clean_home: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    (clean_home / "src").mkdir()
    (clean_home / "src" / "train.py").write_text(
        "import os, sys\n"
        "print('variable is there' if os.environ['API_TOKEN'] else '')\n"
        "print(open('/ml/input/config/training-job.json').read())\n"
        "print(dict((k, v) for k, v in os.environ.items() if k != 'API_TOKEN'))\n"
        "sys.stdin.close(); sys.exit(int(sys.argv[1]))\n"
    )
    shown = io.StringIO()
    session = Session.embedded(service_dir)
    key = read_info(service_dir)
    assert key is not None
    running: list[str] = []
    for code in (0, 1):
        processor = Processor(
            "python:3.11",
            f"python train.py {code}",
            source_dir=clean_home / "src",
            instance_type="ecs.c6.large",
            environments={"API_TOKEN": VARIABLE},
            requirements=[f"--extra-index-url=http://me:{INDEX_PASSWORD}@127.0.0.1:9/simple", "pip"],
            session=session,
        )
        plan = processor.plan()
        plan.save(clean_home / "plan.json")
        job = processor.run(wait=False)
        try:
            for line in job.logs(follow=True):
                print(line.text, file=shown)
                running += _command_lines()
            job.wait(timeout=PATIENCE_S)
        except JobFailed as failure:
            assert code == 1
            print(
                "".join(traceback.TracebackException.from_exception(failure, capture_locals=True).format()),
                file=shown,
            )
            print(pickle.dumps(failure), file=shown)
        for told in (plan, plan.request, processor, session, job, job.record, job.events(), job.error_info()):
            print(repr(told), str(told), file=shown)
    assert "variable is there" in shown.getvalue()
    written = list(_files_below(clean_home))
    captured = capfd.readouterr()
    said = "\n".join((shown.getvalue(), caplog.text, captured.out, captured.err, *running))
    for what, allowed in MAY_HOLD.items():
        secret = key.access_key_secret if what == "the key" else what
        assert secret not in said, _around(said, secret)
        found = {path: mode for path, mode, content in written if secret.encode() in content}
        assert not {path for path in found if not any(path.match(place) for place in allowed)}, what
        assert set(found.values()) <= {0o600}, found
    assert stat.S_IMODE((clean_home / "plan.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(service_dir.stat().st_mode) == 0o700


def _files_below(root: Path) -> Iterator[tuple[Path, int, bytes]]:
    """Each file with its mode and content, but for those that go while we look: the service is still at work."""
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode):
                    yield path.relative_to(root), stat.S_IMODE(mode), path.read_bytes()


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace").replace("\0", " "))
        except OSError:
            continue  # it has ended
    return found


def _around(text: str, secret: str) -> str:
    place = text.index(secret)
    return text[max(0, place - 300) : place + 60]
