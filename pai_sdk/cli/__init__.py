"""The `pai-sdk` command."""

from __future__ import annotations


def main() -> None:
    """Runs the command; the entry point of the package."""
    from pai_sdk.cli.root import run

    run()
