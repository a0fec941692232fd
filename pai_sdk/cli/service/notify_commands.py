"""`pai-sdk notify test`."""

from __future__ import annotations

import socket
import sys
from typing import Annotated

import typer

from pai_sdk._data.notify.messages import Message
from pai_sdk._data.notify.refusals import NotDeliveredError
from pai_sdk._data.notify.targets import target_of
from pai_sdk.cli import exit_codes
from pai_sdk.cli.options import Json
from pai_sdk.cli.tables import print_error, print_json
from pai_sdk.cli.usage.help import Commands
from pai_sdk.errors import InvalidInputError, Problem

app = Commands(
    help="Messages about jobs to chat groups, webhooks and e-mail: try a target.",
    example="pai-sdk notify test 'https://oapi.dingtalk.com/robot/send?access_token=…#secret=SEC…'",
)


@app.callback()
def _group() -> None:  # without a callback, Typer drops the name of the only command
    """Messages about jobs to chat groups, webhooks and e-mail: try a target."""


@app.command("test")
def send_test(
    urls: Annotated[
        list[str],
        typer.Argument(
            metavar="URL", help="Targets as in `notify`; - reads them from standard input, one a line."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Send one message to each target, from this machine, and print why a target refuses it.

    The exit code is 0 if all have accepted it. The parameter `notify` of a job takes the same URLs.

    Example: pai-sdk notify test http://127.0.0.1:8000/hook
    """
    lines = [line.strip() for line in sys.stdin] if urls == ["-"] else urls
    targets = [target_of(url, f"URL {number}") for number, url in enumerate(filter(None, lines), start=1)]
    if not targets:
        raise InvalidInputError([Problem("URL", "is empty", "such as https://… or mailtos://…")])
    message = Message(
        "pai-sdk: a test",
        "Test",
        f"This test was sent from {socket.gethostname()}. Messages about jobs will look like this.",
        lines=["the last lines of a log are here"],
    )
    are_sent = True
    for target in targets:
        reason = code = None
        try:
            target.deliver(message)
        except NotDeliveredError as error:
            reason, code = str(error), error.code
        outcome = {"target": repr(target), "sent": reason is None, "code": code, "reason": reason}
        are_sent = are_sent and reason is None
        if as_json:
            print_json(outcome)
        elif reason is None:
            typer.echo(f"sent to {target!r}")
        else:
            print_error(f"{target!r}: {reason}")
    if not are_sent:
        raise typer.Exit(exit_codes.ERROR)
