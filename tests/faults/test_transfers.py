"""Uploads and downloads over a line that breaks in every way: whole files, or an error that lists the others.

More seeds: `TRIAL_SEEDS=200`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.leftovers import is_unfinished
from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.transfer import download, upload_tree
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import StorageError, TransferError
from tests.faults.proxy import DAMAGES, FaultProxy, Faults, is_content
from tests.support.fake_oss import FakeOss
from tests.unit.data.storage.conftest import wire

__all__ = ["wire"]

BUCKET = "test-bucket"
FOLDER = OssUri(BUCKET, "run/")
PART = 1 << 16
SEEDS = range(int(os.environ.get("TRIAL_SEEDS", "2")))
DAMAGE_SEEDS = range(int(os.environ.get("TRIAL_SEEDS", "30")))


@pytest.fixture
def oss() -> Iterator[FakeOss]:
    fake = FakeOss(BUCKET)
    yield fake
    fake.close()


def client_of(proxy: FaultProxy) -> OssClient:
    retry = RetryPolicy(max_attempts=4, sleep=lambda seconds: None)
    client = OssClient(proxy.url, lambda: Credentials("id", "secret"), region="cn-test", retry=retry)
    client.part_sizes = PartSizes(PART, 2 * PART)
    return client


def made_tree(root: Path, seed: int) -> FileTree:
    dice = random.Random(seed)
    for number in range(12):
        path = root / f"d{number % 3}" / f"small {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.randbytes(dice.choice([0, 1, 5_000, PART])))
    for number in range(2):
        (root / f"large{number}").write_bytes(dice.randbytes(dice.randint(3 * PART, 9 * PART)))
    return FileTree.scan(root)


@pytest.mark.usefixtures("wire")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", [0.25, 0.6])
def test_whole_or_told(oss: FakeOss, tmp_path: Path, seed: int, rate: float) -> None:
    tree = made_tree(tmp_path / "src", seed)
    faults = Faults(rate=rate, burst=3, pause_s=0.001)
    with FaultProxy(oss.endpoint, seed=seed, faults=faults) as proxy, client_of(proxy) as client:
        failed = told_by(lambda: upload_tree(client, tree, FOLDER, marker=False, progress=False, workers=4))
        check_complete(tree, failed, content_in(oss))
        proxy.calm = True
        upload_tree(client, tree, FOLDER, marker=False, progress=False)
        # A beginning whose answer was lost leaves an upload without parts; what was resumed leaves nothing.
        assert not any(parts for _, _, parts in oss.uploads.values())
        proxy.calm = False

        target = tmp_path / "deep" / "down"
        failed = told_by(lambda: download(client, FOLDER, target, progress=False, workers=4))
        check_complete(tree, failed, content_of(target))
        proxy.calm = True
        download(client, FOLDER, target, progress=False)
    assert FileTree.scan(target).digest == tree.digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "src"]
    assert proxy.happened


@pytest.mark.parametrize("seed", DAMAGE_SEEDS)
def test_damaged_content_is_sent_again_or_an_error(oss: FakeOss, tmp_path: Path, seed: int) -> None:
    """Bits that flip and connections that end within a body, both ways; sometimes a store without CRC-64."""
    oss.has_crc64 = seed % 5 > 0
    tree = made_tree(tmp_path / "src", seed)
    faults = Faults(rate=0.4 if seed % 2 else 0.15, kinds=DAMAGES, only=is_content)
    with FaultProxy(oss.endpoint, seed=seed, faults=faults) as proxy, client_of(proxy) as client:
        failed = told_by(lambda: upload_tree(client, tree, FOLDER, marker=False, progress=False, workers=4))
        check_complete(tree, failed, content_in(oss))
        proxy.calm = True
        upload_tree(client, tree, FOLDER, marker=False, progress=False)
        proxy.calm = False
        target = tmp_path / "down"
        failed = told_by(lambda: download(client, FOLDER, target, progress=False, workers=4))
        check_complete(tree, failed, content_of(target))
        proxy.calm = True
        download(client, FOLDER, target, progress=False)
    assert FileTree.scan(target).digest == tree.digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["down", "src"]
    assert proxy.happened


def content_in(oss: FakeOss) -> dict[str, bytes]:
    return {key.removeprefix(FOLDER.key): found.content for key, found in oss.buckets[BUCKET].items()}


def content_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not is_unfinished(path.name))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def check_complete(tree: FileTree, failed: set[str], arrived: dict[str, bytes]) -> None:
    """Check that each file of the tree arrived, or that the error lists it."""
    assert arrived.keys() <= {entry.path for entry in tree.entries}
    for entry in tree.entries:
        # What was told as failed may be there all the same: an answer was lost. It is whole then, too.
        if entry.path in arrived:
            assert arrived[entry.path] == (tree.root / entry.path).read_bytes()
        else:
            assert entry.path in failed or "the rest" in failed


def told_by(transfer: Callable[[], object]) -> set[str]:
    """The files that an error lists; `the rest` when it says that not all were tried."""
    try:
        transfer()
    except TransferError as error:
        gave_up = {"the rest"} if "remaining files were skipped" in str(error) else set()
        return gave_up | set(error.failures)
    except StorageError:  # the list of files itself
        return {"the rest"}
    return set()
