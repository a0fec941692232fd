from __future__ import annotations

from collections.abc import Iterator

import pytest

from pai_sdk._host.agent.tunnel.streams import Tunnel
from tests.support.tunnels import RunningTunnel, running_tunnel


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTunnel]:
    with running_tunnel(tmp_path_factory.mktemp("tunnel"), {"NOTE": "two\nlines"}) as running:
        yield running


@pytest.fixture
def tunnel(running: RunningTunnel) -> Iterator[Tunnel]:
    with running.open() as tunnel:
        yield tunnel
