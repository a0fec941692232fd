"""`python -m pai_sdk.toolkit.config`: asks for region, workspace and bucket, and writes the config file."""

from __future__ import annotations

import os
from collections.abc import Callable

import typer

from pai_sdk._client.session import Session
from pai_sdk._core.config.file import config_path_of, write_config
from pai_sdk._core.config.rules import CHECKS
from pai_sdk._core.config.settings import load_settings
from pai_sdk.errors import PaiError, SettingsError

__all__ = ["run"]

_MAX_ROWS = 20


def run() -> None:
    """Ask for the settings one by one, each with the value in force as its default, and writes the config file.

    Where Alibaba Cloud's tools find a key, workspaces are listed, and the bucket of the workspace is the default.
    Keys are never written.
    """
    file, now = config_path_of(os.environ), load_settings()
    typer.echo(f"The settings of {file}. Enter keeps the value in brackets.")
    region = _prompt("region_id", "Region, such as cn-hangzhou", now.region_id)
    same = now if region == now.region_id else load_settings({"region_id": region})
    session = Session(region)
    _print_options(
        "Workspaces",
        lambda: [f"{record.workspace_id}  {record.workspace_name}" for record in session.workspaces.list()],
    )
    workspace = _prompt("workspace_id", "Id of the workspace", same.workspace_id)
    bucket = _prompt(
        "oss_bucket_name", "OSS bucket for code and outputs", same.oss_bucket_name or _bucket(session, workspace)
    )
    endpoint = _prompt("oss_endpoint", "Host of OSS (- for the region's)", same.oss_endpoint or "-")
    values = {"region_id": region, "workspace_id": workspace, "oss_bucket_name": bucket}
    write_config(file, {**values, "oss_endpoint": None if endpoint == "-" else endpoint})
    typer.echo(f"written to {file}; `pai-sdk doctor` checks the key and the connection")


def _prompt(name: str, question: str, default: str | None) -> str:
    """Prompts for a setting until its value passes the check."""
    while True:
        typed = str(typer.prompt(question, default=default)).strip()
        if typed == "-" and default == "-":
            return typed
        try:
            return CHECKS[name](typed, name)
        except SettingsError as error:
            typer.echo(str(error), err=True)


def _print_options(title: str, names: Callable[[], list[str]]) -> None:
    """Prints the resources that the key can list; after an error, a message."""
    try:
        options = names()
    except PaiError as error:
        typer.echo(f"{title} cannot be listed: {str(error).splitlines()[0].removesuffix('. Tried:')}", err=True)
        return
    typer.echo(f"{title}:" if options else f"{title}: none")
    for name in options[:_MAX_ROWS]:
        typer.echo(f"  {name}")
    if len(options) > _MAX_ROWS:
        typer.echo(f"  … and {len(options) - _MAX_ROWS} more")


def _bucket(session: Session, workspace: str) -> str | None:
    """Returns the bucket of the workspace's default storage; None if it has none or the key cannot read it."""
    try:
        path = session.workspaces.model_export_path(workspace)
    except PaiError:
        return None
    return str(path).partition("://")[2].partition("/")[0].partition(".")[0] or None


if __name__ == "__main__":
    try:
        run()
    except typer.Abort:  # Ctrl-C, or the end of the input
        typer.echo("\nnothing was written", err=True)
        raise SystemExit(1) from None
