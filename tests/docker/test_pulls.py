"""Images that are pulled: from a registry for everybody, from one that wants a key, and not at all."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from pai_sdk._host.execution.docker import images
from pai_sdk.errors import ImageError
from tests.docker.conftest import lines_of
from tests.docker.engine import BASE_IMAGE, Engine
from tests.docker.registry import registry
from tests.support.waiting import PATIENCE_S

KEY = "AWS:A:s3cret/W==S"  # a password may begin, go on and end with whatever separates and pads it


@pytest.fixture
def client(docker_host: Engine) -> Iterator[docker.DockerClient]:
    with docker_host.client() as client:
        yield client


@pytest.fixture
def image(client: docker.DockerClient) -> str:
    """An image of a few kilobytes over the base image, so that there is a layer to fetch."""
    container = client.containers.create(BASE_IMAGE, ["sh", "-c", "head -c 300000 /dev/urandom >/pulled"])
    container.start()
    container.wait()
    container.commit("pai-sdk-test", "to-push")
    container.remove()
    return "pai-sdk-test:to-push"


class Bar:
    """Takes down what a bar is told."""

    def __init__(self, description: str, *, is_visible: bool) -> None:
        self.expected = self.done = 0
        bars.append(self)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def expect(self, size_bytes: int) -> None:
        self.expected += size_bytes

    def advance(self, size_bytes: int) -> None:
        self.done += size_bytes


bars: list[Bar] = []


def test_an_image_is_pulled_with_a_bar_and_then_it_is_there(submit, client, image, monkeypatch):
    monkeypatch.setattr(images, "ByteBar", Bar)
    bars.clear()
    with registry(client, image) as host:
        client.images.remove(image)
        name = f"{host}/team/image:1"
        job = submit("test -s /pulled && echo pulled", image=name).wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["pulled"]
    assert bars[0].done == bars[0].expected > 300_000
    again = submit("echo there", image=name).wait(timeout=PATIENCE_S, show_logs=False)  # the registry is gone
    assert lines_of(again) == ["there"]
    client.images.remove(name)


def test_a_private_registry_gets_the_key_of_docker_login(submit, client, image, clean_home: Path):
    with registry(client, image, key=KEY) as host:
        client.images.remove(image)
        with pytest.raises(ImageError, match="`docker login` to its registry first"):
            submit("true", image=f"{host}/team/image:1")
        (clean_home / ".docker").mkdir()
        auths = {host: {"auth": base64.b64encode(KEY.encode()).decode()}}
        (clean_home / ".docker" / "config.json").write_text(json.dumps({"auths": auths}))
        submit("true", image=f"{host}/team/image:1").wait(timeout=PATIENCE_S, show_logs=False)
        client.images.remove(f"{host}/team/image:1")


def test_a_tag_that_the_registry_does_not_have(submit, client, image):
    with registry(client, image) as host, pytest.raises(ImageError, match="check its name and tag"):
        submit("true", image=f"{host}/team/image:2")


def test_a_registry_that_is_not_reached(submit):
    with pytest.raises(ImageError, match="its registry was not reached"):
        submit("true", image="127.0.0.1:1/team/image:1")
