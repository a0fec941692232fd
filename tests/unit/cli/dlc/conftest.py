"""`pai-sdk dlc` against a server that answers as a test tells it to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from typer.testing import CliRunner, Result

from pai_sdk.cli.root import app
from tests.unit.client.api.scripted_server import ScriptedServer


class Dlc(Protocol):
    """`pai-sdk dlc` with arguments."""

    def __call__(self, *words: str, input: str | None = None) -> Result: ...


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def dlc(server: ScriptedServer, clean_home: Path) -> Dlc:
    """The command; its config file names the server."""
    file = clean_home / ".dlc" / "config"
    file.parent.mkdir()
    file.write_text(
        f"access_id=LTAI-example\naccess_key=a-secret\nprotocol=http\nendpoint={server.endpoint[7:]}\nregion=cn-x\n"
    )

    def run(*words: str, input: str | None = None) -> Result:
        result = CliRunner().invoke(app, ["dlc", *words], input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
