"""Options of the executor: all mistakes at once, before anything is started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pai_sdk._core.extras import install_command
from pai_sdk._host.execution.base import ExecutorSetup
from pai_sdk._host.execution.ray import executor
from pai_sdk._host.execution.ray.executor import RayExecutor
from pai_sdk._host.execution.ray.options import RayOptions
from pai_sdk._host.execution.registry import open_executor
from pai_sdk.errors import InvalidInputError, PaiError


def test_options_are_read() -> None:
    given = {
        "address": "ray://[::1]:10001",
        "cpus_per_instance": "0.5",
        "placement": "PACK",
        "node_folder": "/srv",
    }
    assert RayOptions.parse(given) == RayOptions(
        address="ray://[::1]:10001", cpus_per_instance=0.5, placement="PACK", node_folder="/srv"
    )


@pytest.mark.parametrize("address", ["auto", "head:6379", "10.0.0.1:6379", "ray://head.local:10001"])
def test_addresses(address: str) -> None:
    assert RayOptions.parse({"address": address}).address == address


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    given = {"adress": "auto", "cpus_per_instance": "two", "placement": "NEAR", "node_folder": "here"}
    with pytest.raises(InvalidInputError) as refused:
        open_executor("ray", ExecutorSetup(tmp_path, options=given))
    text = str(refused.value)
    assert "did you mean address?" in text
    for word in ("two", "NEAR", "here"):
        assert f"'{word}' cannot be used" in text


@pytest.mark.parametrize("address", ["http://head:1", "head", "ray://user@head:1", "", "ray://head"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInputError, match="ray://host:port"):
        RayOptions.parse({"address": address})


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "find_spec", lambda name: None)
    with pytest.raises(PaiError, match=re.escape(install_command("ray"))):
        RayExecutor.open(ExecutorSetup(tmp_path))


def test_an_instance_has_one_cpu_by_default() -> None:
    assert RayOptions.parse({"address": "ray://head:10001"}).cpus_per_instance == 1.0
