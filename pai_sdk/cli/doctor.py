"""`pai-sdk doctor`: looks at all that a job needs, and says what to do where something is broken."""

from __future__ import annotations

from dataclasses import asdict

import typer

from pai_sdk.cli import exit_codes
from pai_sdk.cli.checks import Finding, examine
from pai_sdk.cli.jobs import Json
from pai_sdk.cli.tables import print_json, table_console, wrapped
from pai_sdk.display.base import visible_text

__all__ = ["doctor"]

_COLOURS = {"ok": "green", "note": "yellow", "broken": "red"}
_SUBJECT_WIDTH = 11
_INDENT = " " * (7 + _SUBJECT_WIDTH)


def doctor(as_json: Json = False) -> None:
    """Check settings, key, endpoints, bucket, Docker, clock, disk, versions; the exit code is 1 if one is broken.

    Example: pai-sdk doctor
    """
    broken = 0
    for finding in examine():
        broken += finding.health == "broken"
        if as_json:
            print_json(asdict(finding))
        else:
            _print(finding)
    if not as_json:
        typer.echo("\nall is well" if not broken else f"\n{broken} broken")
    raise typer.Exit(exit_codes.ERROR if broken else exit_codes.SUCCEEDED)


def _print(finding: Finding) -> None:
    from rich.text import Text

    console = table_console()
    width = min(console.width, 120) - 1
    head = Text(finding.health.ljust(7), style=_COLOURS[finding.health]).append(
        finding.subject.ljust(_SUBJECT_WIDTH), style="bold"
    )
    width -= len(_INDENT)
    first, *more = wrapped(visible_text(finding.text), width)
    console.print(head.append(first, style="default not bold"), soft_wrap=True)
    for line in more:
        console.print(Text(_INDENT + line), soft_wrap=True)
    for number, line in enumerate(wrapped(finding.remedy, width - 2) if finding.remedy else ()):
        console.print(Text(_INDENT + ("  " if number else "→ ") + line, style="dim"), soft_wrap=True)
