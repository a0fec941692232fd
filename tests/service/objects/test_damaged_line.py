"""The service's own store behind a line that damages what passes: complete objects and files, or an error.

More seeds: `TRIAL_SEEDS=200`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.transfer import download, upload
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import TransferError
from tests.faults.proxy import DAMAGES, FaultProxy, Faults, is_content
from tests.service.objects.conftest import Wire
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET

SEEDS = range(int(os.environ.get("TRIAL_SEEDS", "5")))
PART = 1 << 18


def client_of(endpoint: str) -> OssClient:
    retry = RetryPolicy(max_attempts=4, sleep=lambda seconds: None)
    client = OssClient(endpoint, lambda: Credentials(KEY_ID, SECRET), region=REGION, retry=retry)
    client.part_sizes = PartSizes(PART, 2 * PART)
    return client


def fails(transfer: object, *arguments: object, **options: object) -> set[str]:
    """The files that the error of a transfer names."""
    try:
        transfer(*arguments, **options)  # type: ignore[operator]
    except TransferError as error:
        return set(error.failures)
    return set()


@pytest.mark.parametrize("seed", SEEDS)
def test_complete_or_an_error(wire: Wire, tmp_path: Path, seed: int) -> None:
    dice, folder = random.Random(seed), OssUri(BUCKET, f"damaged/{seed}/")
    files = {f"small{number}": dice.randbytes(dice.choice([1, 5_000, PART])) for number in range(8)}
    files |= {f"large{number}": dice.randbytes(dice.randint(3 * PART, 7 * PART)) for number in range(2)}
    source, target = tmp_path / "src", tmp_path / "down"
    source.mkdir()
    for name, content in files.items():
        (source / name).write_bytes(content)
    faults = Faults(rate=dice.choice([0.15, 0.4]), kinds=DAMAGES, only=is_content)
    with FaultProxy(wire.endpoint, seed=seed, faults=faults) as proxy, client_of(proxy.url) as client:
        failed = fails(upload, client, source, folder, progress=False, workers=4)
        with client_of(wire.endpoint) as direct:
            stored = {info.uri.name: direct.get_bytes(info.uri) for info in direct.list(folder)}
        assert stored == {name: files[name] for name in stored}
        assert failed | stored.keys() == files.keys()
        proxy.calm = True
        upload(client, source, folder, progress=False)
        proxy.calm = False
        failed = fails(download, client, folder, target, progress=False, workers=4)
        arrived = {path.name: path.read_bytes() for path in target.iterdir() if not path.name.startswith(".")}
        assert arrived == {name: files[name] for name in arrived}
        assert failed | arrived.keys() == files.keys()
        proxy.calm = True
        download(client, folder, target, progress=False)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == files
    assert proxy.happened
