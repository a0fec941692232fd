"""What was acknowledged is on the disk: after a kill, and by the order of the system calls after a power cut."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import oss2
import pytest

from tests.service.objects.conftest import Serve
from tests.service.objects.contents import LARGE
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET, open_store
from tests.support.waiting import PATIENCE_S

KILL_AFTER = 100


def put(connection: HTTPConnection, bucket: oss2.Bucket, key: str, content: bytes) -> None:
    url = urlsplit(bucket.sign_url("PUT", key, 600, slash_safe=True))
    connection.request("PUT", f"{url.path}?{url.query}", content)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200


def test_small_objects_that_were_acknowledged_outlive_a_kill(serve_apart: Serve, tmp_path: Path) -> None:
    acknowledged: dict[str, bytes] = {}
    enough = threading.Event()

    def load(bucket: oss2.Bucket, worker: int) -> None:
        host = urlsplit(bucket.endpoint)
        connection = HTTPConnection(host.hostname, host.port, timeout=PATIENCE_S)
        try:
            for number in range(100_000):
                key = f"{worker}/{number}"
                put(connection, bucket, key, key.encode() * 20)
                acknowledged[key] = key.encode() * 20
                if len(acknowledged) >= KILL_AFTER:
                    enough.set()
        except (OSError, HTTPException):
            return  # killed
        finally:
            connection.close()

    root = tmp_path / "store"
    with serve_apart(root) as (wire, process):
        workers = [threading.Thread(target=load, args=(wire.bucket(), number)) for number in range(6)]
        for worker in workers:
            worker.start()
        assert enough.wait(PATIENCE_S)
        process.kill()
        for worker in workers:
            worker.join(PATIENCE_S)
    with open_store(root) as store:
        for key, content in acknowledged.items():
            with store.open(BUCKET, key) as stream:
                assert stream.read() == content


# ---- the order of the system calls


def can_trace() -> bool:
    """Whether strace is there and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


_CALL = re.compile(r"(?P<thread>\d+) +(?P<call>\w+)\((?P<arguments>.*)")
_RESUMED = re.compile(r"(?P<thread>\d+) +<\.\.\. (?P<call>\w+) resumed>")


def calls(trace: Path, root: Path) -> Iterator[str]:
    """What a trace says, in order: `write wal`, `sync wal`, `sync blob`, `sync folder`, `answer` for each 200.

    A call stands where it ended, but an answer where it began.
    """
    begun: dict[str, str] = {}
    for line in trace.read_text(encoding="utf-8", errors="replace").splitlines():
        if found := _RESUMED.match(line):
            if name := begun.pop(found["thread"], ""):
                yield name
        elif found := _CALL.match(line):
            name = _name(found["call"], found["arguments"], root)
            if name and "<unfinished ...>" in line and name != "answer":
                begun[found["thread"]] = name
            elif name:
                yield name


def _name(call: str, arguments: str, root: Path) -> str:
    if call in ("sendto", "sendmsg", "write") and "HTTP/1.1 200" in arguments:
        return "answer"
    path = re.match(rf"\d+<{re.escape(str(root))}/([^>]*)>", arguments)
    if path is None:
        return ""
    if path[1] == "objects.db-wal":
        return {"pwrite64": "write wal", "fsync": "sync wal", "fdatasync": "sync wal"}.get(call, "")
    if call in ("fsync", "fdatasync") and (found := re.fullmatch(r"blobs/[0-9a-f]{2}(/[0-9a-f]{32})?", path[1])):
        return "sync blob" if found[1] else "sync folder"
    return ""


@pytest.mark.skipif(not can_trace(), reason="strace is missing or may not trace; test_writer has the order, too")
def test_the_disk_has_it_before_the_client_hears_of_it(tmp_path: Path) -> None:
    root, trace = tmp_path / "store", tmp_path / "trace"
    traced = "trace=fsync,fdatasync,pwrite64,write,sendto,sendmsg"
    program = [sys.executable, "-W", "ignore", "-m", "tests.service.objects.serving", str(root), "0"]
    command = ["strace", "-f", "-y", "-s", "40", "-e", traced, "-o", str(trace), *program]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[3], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin
        assert server.stdout
        endpoint = server.stdout.readline().strip()
        bucket = oss2.Bucket(oss2.AuthV4(KEY_ID, SECRET), endpoint, BUCKET, region=REGION)
        before = len(list(calls(trace, root)))
        address = urlsplit(endpoint)
        connection = HTTPConnection(address.hostname, address.port, timeout=PATIENCE_S)
        put(connection, bucket, "small", b"x" * 1000)
        put(connection, bucket, "large", b"x" * LARGE)
        connection.close()
        server.stdin.close()  # ends it
        server.wait(PATIENCE_S)
    found = list(calls(trace, root))[before:]
    small_end = found.index("answer")
    small, large = found[:small_end], found[small_end + 1 : found.index("answer", small_end + 1)]
    assert "write wal" in small
    assert small[-1] == "sync wal", "the answer came before its transaction was on the disk"
    assert large[:2] == ["sync blob", "sync folder"], "the row came before its content"
    assert "write wal" in large[2:]
    assert large[-1] == "sync wal", "the answer came before its transaction was on the disk"
