from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import oss2
import pytest
import requests

from pai_sdk._service.oss.store import ObjectStore
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET, open_store, served
from tests.support.waiting import PATIENCE_S


class ClosingSession(oss2.Session):
    """Closes the answers that oss2 itself leaves unread, those to CopyObject for one."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: list[requests.Response] = []

    def do_request(self, req: oss2.http.Request, timeout: object) -> oss2.http.Response:
        answer = super().do_request(req, timeout)
        self._answers.append(answer.response)
        return answer

    def close(self) -> None:
        for answer in self._answers:
            answer.close()
        self.session.close()


@dataclass
class Wire:
    """A served store, and real oss2 clients for it."""

    endpoint: str
    store: ObjectStore | None = None
    sessions: list[ClosingSession] = field(default_factory=list)

    def bucket(
        self,
        name: str = BUCKET,
        *,
        auth: type = oss2.AuthV4,
        key_id: str = KEY_ID,
        secret: str = SECRET,
        **options,
    ) -> oss2.Bucket:
        options = {"region": REGION, "connect_timeout": PATIENCE_S, **options}
        return oss2.Bucket(auth(key_id, secret), self.endpoint, name, session=self._session(), **options)

    def service(self, **options) -> oss2.Service:
        return oss2.Service(
            oss2.AuthV4(KEY_ID, SECRET), self.endpoint, region=REGION, session=self._session(), **options
        )

    def _session(self) -> ClosingSession:
        self.sessions.append(ClosingSession())
        return self.sessions[-1]

    def close(self) -> None:
        for session in self.sessions:
            session.close()


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """One server for the tests of a module; each uses keys of its own."""
    with served(tmp_path_factory.mktemp("store")) as (store, endpoint):
        made = Wire(endpoint, store)
        yield made
        made.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    root = tmp_path / "store"
    with open_store(root) as made:
        made.create_bucket(BUCKET)
        yield made


Serve = Callable[..., "contextmanager[tuple[Wire, subprocess.Popen[str]]]"]


@pytest.fixture
def serve_apart() -> Serve:
    """Serve a folder from a process of its own, which the test may kill."""

    @contextmanager
    def serve(root: Path, *, max_file_bytes: int = 0) -> Iterator[tuple[Wire, subprocess.Popen[str]]]:
        repository = Path(__file__).parents[3]
        process = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "tests.service.objects.serving",
                str(root),
                str(max_file_bytes),
            ],
            cwd=repository,
            env={**os.environ, "PYTHONPATH": str(repository)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with process:
            wire = Wire(process.stdout.readline().strip())
            try:
                yield wire, process
            finally:
                wire.close()
                process.kill()

    return serve
