"""The examples of the page about local jobs, on a real engine."""

from __future__ import annotations

from pathlib import Path

from tests.docker.engine import BASE_IMAGE, Engine

PAGE = Path(__file__).parents[2] / "docs" / "local.md"


def test_the_examples_of_the_page_work(docker_host: Engine, run_page) -> None:
    with docker_host.client() as client:
        client.images.get(BASE_IMAGE).tag("python", "3.11")
    status, said = run_page(PAGE)
    assert status == 0, said
