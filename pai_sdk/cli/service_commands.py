"""`pai-sdk service status|stop|clean`: the service on this machine, and what its data folder holds."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk.base.paths import expanded
from pai_sdk.cli import exit_codes
from pai_sdk.cli.durations import seconds_of
from pai_sdk.cli.jobs import Json
from pai_sdk.cli.tables import Column, print_facts, print_json, print_table
from pai_sdk.display.base import duration_text, visible_text
from pai_sdk.storage.tree import size_text

if TYPE_CHECKING:
    from pai_sdk.service.settings import ServiceInfo

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="The service on this machine: is it running, what does it hold, stop, clean."
)

_DATA = "~/.pai/service"

Data = Annotated[Path, typer.Option("--data", help="The service's data folder.")]


@app.command()
def status(data: Data = Path(_DATA), as_json: Json = False) -> None:
    """Show whether the service runs, and what its folder holds on disk.

    The exit code is 0 when it runs, and 102 when not.

    Example: pai-sdk service status
    """
    from pai_sdk.service.embedded import find_running
    from pai_sdk.service.holdings import holdings

    root = expanded(data).absolute()
    idle_s = _idle_s(root)  # first: to look whether it answers is a request, too
    running = find_running(root)
    held = holdings(root)
    if as_json:
        facts: dict[str, Any] = {
            "data": str(root),
            "running": running is not None,
            "holds": [asdict(h) for h in held],
        }
        if running is not None:
            facts |= {
                "endpoint": running.endpoint,
                "pid": running.pid,
                "version": running.version,
                "idle_s": idle_s,
            }
        print_json(facts)
    else:
        print_facts(_facts(root, running, idle_s))
        typer.echo("")
        rows = [
            (h.kind, size_text(h.size_bytes), "" if h.count is None else str(h.count))
            for h in held
            if h.size_bytes
        ]
        total = sum(h.size_bytes for h in held)
        columns = (Column("HOLDS"), Column("SIZE", justify="right"), Column("COUNT", justify="right"))
        print_table(columns, [*rows, ("all", size_text(total), "")])
    raise typer.Exit(exit_codes.SUCCEEDED if running is not None else exit_codes.NOT_FOUND)


@app.command()
def stop(data: Data = Path(_DATA)) -> None:
    """Stop the service. Running jobs go on; the next command or session that needs it starts it again.

    Example: pai-sdk service stop
    """
    from pai_sdk.service.embedded import stop_running

    stopped = stop_running(expanded(data))
    typer.echo(
        "no service is running" if stopped is None else f"stopped {stopped.endpoint} (process {stopped.pid})"
    )


@app.command()
def clean(
    older_than: Annotated[
        str, typer.Option(help="Only what has ended, or was used, longer ago: 7d, 12h, 30m, 0.")
    ] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed.")] = False,
    data: Data = Path(_DATA),
) -> None:
    """Remove what is not needed: environments and downloads of pip, and copies that jobs which have ended left.

    Jobs, logs and objects stay; `pai-sdk prune --service` removes jobs.

    Example: pai-sdk service clean --older-than 0 --dry-run
    """
    from pai_sdk.service.holdings import clean as removals

    seconds, count, size_bytes = seconds_of(older_than, "--older-than"), 0, 0
    for removal in removals(expanded(data).absolute(), older_than_s=seconds, dry_run=dry_run):
        typer.echo(f"{size_text(removal.size_bytes):>10}  {visible_text(removal.what)}")
        count, size_bytes = count + 1, size_bytes + removal.size_bytes
    if not count:
        typer.echo("nothing to remove")
    else:
        typer.echo(f"{'would free' if dry_run else 'freed'} {size_text(size_bytes)}")


def _facts(root: Path, running: ServiceInfo | None, idle_s: float | None) -> list[tuple[str, str]]:
    facts = [("service", "running" if running is not None else "not running")]
    if running is not None:
        kind = "embedded, ends after 30 idle minutes" if running.embedded else "started by `pai-sdk serve`"
        facts += [
            ("endpoint", running.endpoint),
            ("process", f"{running.pid} ({kind})"),
            ("version", running.version or "unknown"),
        ]
    if idle_s is not None:
        facts.append(("last request", f"{duration_text(idle_s)} ago"))
    return [*facts, ("data", str(root))]


def _idle_s(root: Path) -> float | None:
    """Seconds since the last request that was let in: each leaves its signature in a file."""
    try:
        return max(0.0, time.time() - (root / "nonces").stat().st_mtime)
    except OSError:
        return None
