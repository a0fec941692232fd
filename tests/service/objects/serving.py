"""The OSS wire on a real port: in a thread, for most tests, or as a program of its own that can be killed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from pai_sdk._service.http.guarded_connections import guarded_protocol
from pai_sdk._service.oss.oss_app import ObjectApp
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.settings import ConnectionLimits
from tests.support.waiting import PATIENCE_S, until

KEY_ID, SECRET, REGION, BUCKET = "test-id", "test-secret", "cn-test", "my-bucket"


def open_store(root: Path, **options: float) -> ObjectStore:
    """A store on that folder."""
    return ObjectStore(root, **options)


def _server(store: ObjectStore) -> uvicorn.Server:
    app = ObjectApp(store, {KEY_ID: SECRET}, region=REGION)
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http=guarded_protocol(ConnectionLimits()),
        lifespan="off",
        log_level="warning",
        access_log=False,
        # The official clients try nothing again: a connection that is closed just as they use it fails a test.
        timeout_keep_alive=600,
    )
    return uvicorn.Server(config)


def _wait_for_port(server: uvicorn.Server) -> int:
    until(lambda: server.started, "the server's start")
    return server.servers[0].sockets[0].getsockname()[1]


@contextmanager
def served(root: Path) -> Iterator[tuple[ObjectStore, str]]:
    with open_store(root) as store:
        store.create_bucket(BUCKET)
        server = _server(store)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield store, f"http://127.0.0.1:{_wait_for_port(server)}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)


def main(root: str, max_file_bytes: str) -> None:
    """Serve a folder until killed; the first line printed is the endpoint."""
    import resource

    if int(max_file_bytes):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(max_file_bytes), int(max_file_bytes)))
    with served(Path(root)) as (_, endpoint):
        print(endpoint, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
