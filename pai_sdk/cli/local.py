"""The command about what local jobs leave: prune."""

from __future__ import annotations

import typer


def prune() -> None:
    """Remove what local jobs that have ended keep in Docker and in their folders. Outputs stay."""
    from pai_sdk.session import get_default_session

    removed = get_default_session(local=True).local.prune()
    typer.echo("nothing to remove" if not removed else f"removed {len(removed)}: {', '.join(removed)}")
