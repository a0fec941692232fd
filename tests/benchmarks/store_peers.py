"""Moves a folder up and down with one library, as a program of its own; prints its numbers as JSON.

It runs in the environment of the peers, so it imports nothing of this project. Each library is used as its
documentation says, with 16 threads where it has none of its own; `sequential` is one request after the other.
"""

import json
import os
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
    move = {"oss2": Oss2, "sequential": Oss2, "oss-v2": OssV2, "ossfs": Ossfs}[kind](
        endpoint, bucket, key_id, secret
    )
    threads = 1 if kind == "sequential" else THREADS
    prefix = f"peers/{kind}/{os.getpid()}"
    cpu, started = time.process_time(), time.perf_counter()
    move.up(source, prefix, names, threads)
    up, up_cpu = time.perf_counter() - started, time.process_time() - cpu
    started = time.perf_counter()
    move.down(prefix, target, names, threads)
    down = time.perf_counter() - started
    for name in names:
        assert (Path(target) / name).stat().st_size == (Path(source) / name).stat().st_size, name
    size = sum(path.stat().st_size for path in files)
    print(json.dumps({"up_s": up, "down_s": down, "cpu_s": up_cpu, "files": len(files), "bytes": size}))


class Oss2:
    def __init__(self, endpoint: str, bucket: str, key_id: str, secret: str) -> None:
        import oss2

        self._oss2 = oss2
        session = oss2.Session(pool_size=THREADS)
        auth = oss2.AuthV4(key_id, secret)
        self._bucket = oss2.Bucket(auth, endpoint, bucket, region=REGION, session=session, enable_crc=False)

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


if __name__ == "__main__":
    main(*sys.argv[1:])
