"""Moves a folder up and down with one library, as a program of its own; prints its numbers as JSON.

Peers run in an environment of theirs, so only `pai_sdk` imports this project. Each library is used as its
documentation says, with 16 threads where it has none of its own; `sequential` is one request after the other, and
`unchecked` is oss2 without its CRC-64.
"""

import json
import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 16
REGION = "cn-test"


def main(kind: str, endpoint: str, bucket: str, key_id: str, secret: str, source: str, target: str) -> None:
    files = sorted(path for path in Path(source).rglob("*") if path.is_file())
    names = [path.relative_to(source).as_posix() for path in files]
    Path(target).mkdir()
    for folder in {(Path(target) / name).parent for name in names}:
        folder.mkdir(parents=True, exist_ok=True)
    move = KINDS[kind](endpoint, bucket, key_id, secret)
    threads = 1 if kind == "sequential" else THREADS
    prefix = f"peers/{kind}/{os.getpid()}"
    found = {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}
    for way, work in (
        ("up", lambda: move.up(source, prefix, names, threads)),
        ("down", lambda: move.down(prefix, target, names, threads)),
    ):
        cpu, started = time.process_time(), time.perf_counter()
        work()
        found |= {f"{way}_s": time.perf_counter() - started, f"{way}_cpu_s": time.process_time() - cpu}
    for name in names:
        assert (Path(target) / name).stat().st_size == (Path(source) / name).stat().st_size, name
    # On macOS in bytes, elsewhere in KiB.
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 2**10
    )
    print(json.dumps(found))


def _peak_mib() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # in bytes on macOS
    # Not ru_maxrss: on Linux it has that of the process which started this one.
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**10


class PaiSdk:
    def __init__(self, endpoint: str, bucket: str, key_id: str, secret: str) -> None:
        from pai_sdk._core.config.credentials import Credentials
        from pai_sdk._data.storage import transfer
        from pai_sdk._data.storage.oss.client import OssClient
        from pai_sdk._data.storage.uri import OssUri

        self._transfer, self._folder = transfer, lambda prefix: OssUri(bucket, f"{prefix}/")
        key = Credentials(key_id, secret)
        self._client = OssClient(endpoint, lambda: key, region=REGION)

    def up(self, source: str, prefix: str, names: list, threads: int) -> None:
        self._transfer.upload(self._client, source, self._folder(prefix), progress=False)

    def down(self, prefix: str, target: str, names: list, threads: int) -> None:
        self._transfer.download(self._client, self._folder(prefix), target, progress=False)


class Oss2:
    is_checked = True

    def __init__(self, endpoint: str, bucket: str, key_id: str, secret: str) -> None:
        import oss2

        self._oss2 = oss2
        session = oss2.Session(pool_size=THREADS)
        auth = oss2.AuthV4(key_id, secret)
        self._bucket = oss2.Bucket(
            auth, endpoint, bucket, region=REGION, session=session, enable_crc=self.is_checked
        )

    def up(self, source: str, prefix: str, names: list, threads: int) -> None:
        def put(name: str) -> None:
            path = f"{source}/{name}"
            if "large" in name:
                self._oss2.resumable_upload(self._bucket, f"{prefix}/{name}", path, num_threads=THREADS // 4)
            else:
                self._bucket.put_object_from_file(f"{prefix}/{name}", path)

        _each(put, names, threads)

    def down(self, prefix: str, target: str, names: list, threads: int) -> None:
        def get(name: str) -> None:
            path = f"{target}/{name}"
            if "large" in name:
                self._oss2.resumable_download(self._bucket, f"{prefix}/{name}", path, num_threads=THREADS // 4)
            else:
                self._bucket.get_object_to_file(f"{prefix}/{name}", path)

        _each(get, names, threads)


class Oss2Unchecked(Oss2):
    is_checked = False


class OssV2:
    def __init__(self, endpoint: str, bucket: str, key_id: str, secret: str) -> None:
        import alibabacloud_oss_v2 as oss

        config = oss.config.load_default()
        config.credentials_provider = oss.credentials.StaticCredentialsProvider(key_id, secret)
        config.region, config.endpoint, config.use_path_style = REGION, endpoint, True
        self._oss, self._bucket = oss, bucket
        self._client = oss.Client(config)

    def up(self, source: str, prefix: str, names: list, threads: int) -> None:
        uploader = self._client.uploader()

        def put(name: str) -> None:
            key, path = f"{prefix}/{name}", f"{source}/{name}"
            if "large" in name:
                uploader.upload_file(self._oss.PutObjectRequest(bucket=self._bucket, key=key), filepath=path)
            else:
                self._client.put_object_from_file(self._oss.PutObjectRequest(bucket=self._bucket, key=key), path)

        _each(put, names, threads)

    def down(self, prefix: str, target: str, names: list, threads: int) -> None:
        downloader = self._client.downloader()

        def get(name: str) -> None:
            key, path = f"{prefix}/{name}", f"{target}/{name}"
            request = self._oss.GetObjectRequest(bucket=self._bucket, key=key)
            if "large" in name:
                downloader.download_file(request, filepath=path)
            else:
                self._client.get_object_to_file(request, path)

        _each(get, names, threads)


class Ossfs:
    def __init__(self, endpoint: str, bucket: str, key_id: str, secret: str) -> None:
        from ossfs import OSSFileSystem

        self._fs = OSSFileSystem(key=key_id, secret=secret, endpoint=endpoint)
        self._bucket = bucket

    def up(self, source: str, prefix: str, names: list, threads: int) -> None:
        places = [f"{self._bucket}/{prefix}/{name}" for name in names]
        self._fs.put([f"{source}/{name}" for name in names], places)

    def down(self, prefix: str, target: str, names: list, threads: int) -> None:
        places = [f"{self._bucket}/{prefix}/{name}" for name in names]
        self._fs.get(places, [f"{target}/{name}" for name in names])


def _each(move: object, names: list, threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(move, names))


KINDS = {
    "pai_sdk": PaiSdk,
    "oss2": Oss2,
    "unchecked": Oss2Unchecked,
    "sequential": Oss2,
    "oss-v2": OssV2,
    "ossfs": Ossfs,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
