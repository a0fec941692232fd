"""Large files whose transfer is killed at any moment, on a real object store: the next run sends what is missing.

`PAI_TEST_LARGE=1` takes 1 GiB in parts of the usual size instead of 96 MiB in small ones.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.transfer import download, upload
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._service.oss.store import ObjectStore
from tests.faults.proxy import FaultProxy, Faults
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET, served

LARGE = bool(os.environ.get("PAI_TEST_LARGE"))
SIZE = (1 << 30) + 12_345 if LARGE else (96 << 20) + 12_345
PART = (8 << 20) if LARGE else (1 << 20)
PARTS = -(-SIZE // PART)
WORKERS = 16
LONGEST_S = 600 if LARGE else 300
OBJECT = OssUri(BUCKET, "models/large.bin")

pytestmark = pytest.mark.timeout(2 * LONGEST_S)

PROGRAM = f"""
import sys
from pathlib import Path
from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.transfer import download, upload
from pai_sdk._data.storage.uri import OssUri

verb, endpoint, path = sys.argv[1:]
client = OssClient(endpoint, lambda: Credentials({KEY_ID!r}, {SECRET!r}), region={REGION!r})
client.part_sizes = PartSizes({PART})
uri = OssUri.parse({str(OBJECT)!r})
upload(client, Path(path), uri) if verb == "upload" else download(client, uri, Path(path))
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[ObjectStore, str]]:
    with served(tmp_path / "store") as given:
        yield given


def a_file(path: Path, seed: int) -> str:
    """Write the file; returns its SHA-256."""
    dice, content = random.Random(seed), hashlib.sha256()
    with path.open("wb") as out:
        for start in range(0, SIZE, 1 << 20):
            chunk = dice.randbytes(min(1 << 20, SIZE - start))
            content.update(chunk)
            out.write(chunk)
    return content.hexdigest()


def sha256_of(path: Path) -> str:
    content = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            content.update(chunk)
    return content.hexdigest()


def client_of(endpoint: str) -> OssClient:
    client = OssClient(endpoint, lambda: Credentials(KEY_ID, SECRET), region=REGION)
    client.part_sizes = PartSizes(PART)
    return client


def killed_at(number: int, verb: str, path: Path, endpoint: str, counts: Callable[[str, str], bool]) -> None:
    """Run the program, and kill it when that many of the requests that count have come."""
    running: list[subprocess.Popen[bytes]] = []
    seen = 0

    def kill(method: str, url: str) -> bool:
        nonlocal seen
        seen += counts(method, url)
        if seen >= number:
            running[0].kill()
        return False

    # `kill` is asked for each request, and breaks none.
    with FaultProxy(endpoint, seed=0, faults=Faults(only=kill)) as proxy:
        running.append(subprocess.Popen([sys.executable, "-c", PROGRAM, verb, proxy.url, str(path)]))
        assert running[0].wait(timeout=LONGEST_S) == -9


def is_part(method: str, url: str) -> bool:
    return method == "PUT" and "partNumber=" in url


def is_get(method: str, url: str) -> bool:
    return method == "GET" and "large.bin" in url


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_upload_goes_on(store: tuple[ObjectStore, str], tmp_path: Path, seed: int) -> None:
    objects, endpoint = store
    path = tmp_path / "large.bin"
    sha256 = a_file(path, seed)
    killed_at(random.Random(seed).randint(WORKERS + 2, PARTS), "upload", path, endpoint, is_part)
    (unfinished,) = objects.uploads.list(BUCKET)
    arrived = len(objects.uploads.parts(BUCKET, OBJECT.key, unfinished.id))
    assert arrived > 0
    with FaultProxy(endpoint, seed=0, faults=Faults(rate=0)) as proxy, client_of(proxy.url) as client:
        upload(client, path, OBJECT, workers=WORKERS)
        sent = proxy.seen[f"PUT /{BUCKET}/models%2Flarge.bin"]
        assert sent == PARTS - arrived
        download(client, OBJECT, tmp_path / "back")
    assert sha256_of(tmp_path / "back") == sha256
    assert objects.uploads.list(BUCKET) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_download_goes_on(store: tuple[ObjectStore, str], tmp_path: Path, seed: int) -> None:
    _, endpoint = store
    path, target = tmp_path / "large.bin", tmp_path / "down" / "large.bin"
    sha256 = a_file(path, seed)
    with client_of(endpoint) as client:
        upload(client, path, OBJECT)
    killed_at(random.Random(seed).randint(2 * WORKERS, PARTS), "download", target, endpoint, is_get)
    assert not target.exists()
    noted = sum(len(notes.read_text().splitlines()) - 1 for notes in target.parent.glob("*.done"))
    assert noted > 0
    with FaultProxy(endpoint, seed=0, faults=Faults(rate=0)) as proxy, client_of(proxy.url) as client:
        download(client, OBJECT, target)
        assert proxy.seen[f"GET /{BUCKET}/models%2Flarge.bin"] <= PARTS - noted
    assert sha256_of(target) == sha256
    assert [each.name for each in target.parent.iterdir()] == ["large.bin"]


def test_two_uploads_of_one_file_at_once(store: tuple[ObjectStore, str], tmp_path: Path) -> None:
    objects, endpoint = store
    path = tmp_path / "large.bin"
    sha256 = a_file(path, 7)
    killed_at(PARTS // 2, "upload", path, endpoint, is_part)  # both go on with the same upload
    command = [sys.executable, "-c", PROGRAM, "upload", endpoint, str(path)]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=LONGEST_S) for process in both] == [0, 0]
    with client_of(endpoint) as client:
        download(client, OBJECT, tmp_path / "back")
    assert sha256_of(tmp_path / "back") == sha256
    assert objects.uploads.list(BUCKET) == []


def test_two_downloads_to_one_file_at_once(store: tuple[ObjectStore, str], tmp_path: Path) -> None:
    """Each writes to its own file until it is complete; one resumes the file of a killed process."""
    _, endpoint = store
    path, target = tmp_path / "large.bin", tmp_path / "down" / "large.bin"
    sha256 = a_file(path, 8)
    with client_of(endpoint) as client:
        upload(client, path, OBJECT)
    killed_at(PARTS // 2, "download", target, endpoint, is_get)
    command = [sys.executable, "-c", PROGRAM, "download", endpoint, str(target)]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=LONGEST_S) for process in both] == [0, 0]
    assert sha256_of(target) == sha256
    assert [each.name for each in target.parent.iterdir()] == ["large.bin"]
