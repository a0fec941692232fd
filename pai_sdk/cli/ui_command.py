"""`pai-sdk ui`: a page and an HTTP API for the runs of any folder."""

from __future__ import annotations

import os
import secrets
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pai_sdk.base.paths import expanded
from pai_sdk.cli import exit_codes
from pai_sdk.errors import ServiceStartError
from pai_sdk.storage.uri import uri_scheme

if TYPE_CHECKING:
    from pai_sdk.service.web.ui_server import UiServer

__all__ = ["ui"]

_TOKEN_BYTES = 32
_LEAST_TOKEN = 16


def ui(
    logdir: Annotated[str, typer.Option(metavar="DIR", help="The folder of runs, or its URI.")] = ".",
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback open it to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 6007,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="A name of this machine by which browsers ask for the page; may be given several times."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with a token for programs (Authorization: Bearer); made if there is none."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show the runs of a folder in the browser, and serve them over HTTP, until Ctrl-C.

    The link is valid once, for a minute; Enter prints a new one. On another machine, forward the port with ssh -L.

    Example: pai-sdk ui --logdir runs --open
    """
    try:
        from pai_sdk.service.web.ui_server import UiServer, UiSettings
    except ImportError as error:
        message = f"error: the server is not installed ({error.name}): pip install 'pai-sdk[service]'"
        typer.secho(message, fg="red", err=True)
        raise typer.Exit(exit_codes.ERROR) from error
    place = logdir if uri_scheme(logdir) is not None else expanded(Path(logdir))
    if isinstance(place, Path) and not place.is_dir():
        raise typer.BadParameter(f"there is no folder {str(place)!r}", param_hint="--logdir")
    token = _token_in(token_file.expanduser()) if token_file is not None else ""
    server = UiServer(UiSettings(place, host, port, tuple(name or ()), token))
    server.run(lambda: _greet(server, place, open_browser=open_browser))


def _greet(server: UiServer, place: str | Path, *, open_browser: bool) -> None:
    link = server.new_link()
    typer.echo(f"Runs of {place} on {server.url}; Ctrl-C ends it.\nOpen this link within a minute:\n  {link}")
    if open_browser:
        typer.launch(link)
    if sys.stdin is not None and sys.stdin.isatty():
        typer.echo("Enter prints a new link.")
        threading.Thread(target=_print_links, args=(server,), name="links", daemon=True).start()


def _print_links(server: UiServer) -> None:
    for _ in sys.stdin:
        typer.echo(f"  {server.new_link()}")


def _token_in(file: Path) -> str:
    """The token in a file; a new one is written there if there is no file, for this user only.

    Raises:
        ServiceStartError: the file cannot be used, or its token is too short.
    """
    try:
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            token = file.read_text(encoding="utf-8").strip()
        else:
            token = secrets.token_urlsafe(_TOKEN_BYTES)
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(f"{token}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceStartError(f"the token file {file} cannot be used: {error}") from error
    if len(token) < _LEAST_TOKEN:
        raise ServiceStartError(
            f"{file} has no token of at least {_LEAST_TOKEN} characters; delete it for a new one"
        )
    return token
