"""A run's files sent to the embedded object store by a process that cannot import pai_sdk."""

from __future__ import annotations

import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.run.store.run_store import RunStore
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
from tests.service.objects.conftest import Wire
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET
from tests.support.interpreters import IN_JOBS, INTERPRETERS
from tests.support.waiting import PATIENCE_S

KEY = {"ALIBABA_CLOUD_ACCESS_KEY_ID": KEY_ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": SECRET}
NAME = "sub/日本 a+b%2F?&#.txt"

PROGRAM = """
import os, pathlib, pickle, sys
sys.path[:] = [place for place in sys.path if not os.path.isdir(os.path.join(place, "pai_sdk"))]
remote = pickle.load(open(sys.argv[1], "rb"))
remote = pickle.loads(pickle.dumps(remote))
with remote.get_local_output_dir() as folder:
    folder = pathlib.Path(folder)
    (folder / "sub").mkdir()
    (folder / "a").write_text("1")
    (folder / sys.argv[2]).write_bytes(b"x" * 100)
    (folder / "large").write_bytes(b"0123456789" * 1_700_000)
    (folder / "empty").touch()
    (folder / "run.sh").touch(mode=0o755)
    remote.sync(str(folder) + "/")
    (folder / "a").write_text("2")
    remote.sync(str(folder))
assert not [name for name in sys.modules if name.partition(".")[0] == "pai_sdk"]
print("sent")
"""


class SessionOf:
    def __init__(self, client: OssClient) -> None:
        self._client = client

    backend_for = None

    def __getstate__(self) -> dict[str, object]:
        return {}  # of a real session, a pickled store keeps a reference without keys

    def files(self) -> OssClient:
        return self._client


@pytest.fixture
def store(wire: Wire) -> Iterator[RunStore]:
    with OssClient(wire.endpoint, lambda: Credentials(KEY_ID, SECRET), region=REGION) as client:
        yield RunStore.create(f"oss://{BUCKET}/{uuid.uuid4().hex}", session=SessionOf(client))


def run(
    store: RunStore, folder: Path, python: str = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    pickled = folder / "remote.pickle"
    pickled.write_bytes(pickle.dumps(store.to_remote("r1")))
    assert SECRET.encode() not in pickled.read_bytes()
    return subprocess.run(
        [python, "-I", "-S", "-c", PROGRAM, str(pickled), NAME],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("version", IN_JOBS)
def test_a_process_with_the_standard_library_only_reaches_oss(
    store: RunStore, tmp_path: Path, version: str
) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"there is no Python {version} on this machine")
    done = run(store, tmp_path, INTERPRETERS[version], **KEY)
    assert (done.stdout, done.stderr) == ("sent\n", "")
    there = store._open(store.get_run_path("r1"))
    assert [file.path for file in there.list()] == sorted(["a", "empty", "large", "run.sh", NAME])
    assert b"".join(there.read("a")) == b"2"
    assert b"".join(there.read("large")) == b"0123456789" * 1_700_000
    assert b"".join(there.read(NAME)) == b"x" * 100
    assert [path for path in ("a", "run.sh") if there.head(path).executable] == ["run.sh"]
    # The engine checks what it fetches against the hash that was sent along.
    with store.local_dir("r2") as folder:
        assert DirSync(there, LocalStore(folder), remember=False).run().moved == 5


def test_without_a_key_the_error_names_the_variables(store: RunStore, tmp_path: Path) -> None:
    done = run(store, tmp_path)
    assert "set ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET" in done.stderr
    assert list(store.list(store.get_run_path("r1"))) == []


def test_a_wrong_key_is_an_error_that_does_not_show_it(store: RunStore, tmp_path: Path) -> None:
    wrong = {**KEY, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "wrong-secret"}
    done = run(store, tmp_path, **wrong)
    assert "HTTP 403 SignatureDoesNotMatch" in done.stderr
    assert "wrong-secret" not in done.stderr
    assert list(store.list(store.get_run_path("r1"))) == []
