"""1 GiB (256 MiB if quick) to and from the embedded service, beside oss2's resumable_upload and _download."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import oss2
import psutil

from pai_sdk import Session
from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.transfer import download, upload
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._service.embedded import ensure_running
from tests.benchmarks.harness import Row, is_quick

REPETITIONS = 5

UP = Row("upload", at_most=3.0)
UP_OSS2 = Row("upload by oss2")
UP_RATIO = Row("upload, times the time of oss2", "x", at_most=0.7)
UP_CPU = Row("upload, CPU time of this process")
DOWN = Row("download")
DOWN_OSS2 = Row("download by oss2")
DOWN_RATIO = Row("download, times the time of oss2", "x", at_most=0.7)
DOWN_CPU = Row("download, CPU time of this process")
UP_CPU_OSS2 = Row("upload, CPU time of oss2")
DOWN_CPU_OSS2 = Row("download, CPU time of oss2")
AGAIN = Row("download of what is there")
ROWS = (
    *(UP, UP_OSS2, UP_RATIO, UP_CPU, UP_CPU_OSS2),
    *(DOWN, DOWN_OSS2, DOWN_RATIO, DOWN_CPU, DOWN_CPU_OSS2, AGAIN),
)

SIZE = (256 if is_quick() else 1024) << 20
THREADS = 16


def prepare(cache: Path) -> None:
    path = _file(cache)
    if not path.exists() or path.stat().st_size != SIZE:
        dice = random.Random(1)
        with path.open("wb") as out:
            for _ in range(SIZE >> 20):
                out.write(dice.randbytes(1 << 20))


def measure(cache: Path) -> dict[str, float | str]:
    Session.embedded()
    info = ensure_running()
    key = Credentials(info.access_key_id, info.access_key_secret)
    client = OssClient(info.oss_endpoint, lambda: key, region=info.region_id)
    auth = oss2.AuthV4(info.access_key_id, info.access_key_secret)
    bucket = oss2.Bucket(auth, info.oss_endpoint, info.bucket, region=info.region_id)
    file, ours, theirs = str(_file(cache)), OssUri(info.bucket, "ours"), "theirs"
    client.put_bytes(OssUri(info.bucket, "first"), b"")  # the first request pays for what later ones find ready
    up, up_cpu = _timed(lambda: upload(client, file, ours, workers=THREADS))
    up_oss2, up_cpu_oss2 = _timed(lambda: oss2.resumable_upload(bucket, theirs, file, num_threads=THREADS))
    down, down_cpu = _timed(lambda: download(client, ours, "ours", workers=THREADS))
    down_oss2, down_cpu_oss2 = _timed(
        lambda: oss2.resumable_download(bucket, theirs, "theirs", num_threads=THREADS)
    )
    again, _ = _timed(lambda: download(client, ours, "ours"))
    return {
        UP.name: up,
        UP_OSS2.name: up_oss2,
        UP_RATIO.name: up / up_oss2,
        UP_CPU.name: up_cpu,
        UP_CPU_OSS2.name: up_cpu_oss2,
        DOWN.name: down,
        DOWN_OSS2.name: down_oss2,
        DOWN_RATIO.name: down / down_oss2,
        DOWN_CPU.name: down_cpu,
        DOWN_CPU_OSS2.name: down_cpu_oss2,
        AGAIN.name: again,
    }


def _timed(action: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of this process on a CPU."""
    this = psutil.Process()
    before, started = sum(this.cpu_times()[:2]), time.perf_counter()
    action()
    return time.perf_counter() - started, sum(this.cpu_times()[:2]) - before


def _file(cache: Path) -> Path:
    return cache / f"transfer-{SIZE}.bin"
