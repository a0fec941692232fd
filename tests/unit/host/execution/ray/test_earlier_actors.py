"""Tunnels into jobs whose actors an earlier release has started: they have no method for requests."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("ray")

from pai_sdk._host.execution.ray.cluster import Cluster, NodeError
from pai_sdk._host.execution.ray.hub import Hub
from pai_sdk._host.execution.ray.mirror import _Mirror
from tests.support.waiting import until


class EarlierActor:
    def ask(self, method: str, *arguments: Any) -> str:
        return method

    def result(self, method: str) -> None:
        try:
            getattr(self, method)()
        except AttributeError as error:
            raise NodeError(f"j-master-0: {error}") from error


class Actors:
    def instance(self, name: str) -> EarlierActor:
        return EarlierActor()


def test_an_actor_without_tunnels_is_refused(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    name = hub.request_tunnel("j-master-0", {"expires_at": time.time() + 60})
    _Mirror(hub, cast(Cluster, Actors()))._dial_tunnels()
    until(lambda: hub.tunnel_refusal(name) is not None)
    assert (hub.tunnel_refusal(name) or {})["code"] == "NotSupported"
