"""`python -m pai_sdk.toolkit.config`: asks for region, workspace and bucket, and writes the config file."""

from __future__ import annotations

import os
from collections.abc import Callable

import typer

from pai_sdk.config.file import config_path_of, write_config
from pai_sdk.config.rules import CHECKS
from pai_sdk.config.settings import load_settings
from pai_sdk.errors import PaiError, SettingsError
from pai_sdk.session import Session

__all__ = ["run"]

_SHOWN = 20


def run() -> None:
    """Ask for the settings one by one, each with the value in force as its default, and write the config file.

    Where Alibaba Cloud's tools find a key, workspaces are listed, and the bucket of the workspace is the default.
    Keys are never written.
    """
    file, now = config_path_of(os.environ), load_settings()
    typer.echo(f"The settings of {file}. Enter keeps the value in brackets.")
    region = _asked("region_id", "Region, such as cn-hangzhou", now.region_id)
    same = now if region == now.region_id else load_settings({"region_id": region})
    session = Session(region)
    _listed(
        "Workspaces", lambda: [f"{one.workspace_id}  {one.workspace_name}" for one in session.workspaces.list()]
    )
    workspace = _asked("workspace_id", "Id of the workspace", same.workspace_id)
    bucket = _asked(
        "oss_bucket_name", "OSS bucket for code and outputs", same.oss_bucket_name or _bucket(session, workspace)
    )
    endpoint = _asked("oss_endpoint", "Host of OSS (- for the region's)", same.oss_endpoint or "-")
    given = {"region_id": region, "workspace_id": workspace, "oss_bucket_name": bucket}
    write_config(file, {**given, "oss_endpoint": None if endpoint == "-" else endpoint})
    typer.echo(f"written to {file}; `pai-sdk doctor` checks the key and the connection")


def _asked(name: str, question: str, default: str | None) -> str:
    """The text that is typed, after a check; asked again until it passes."""
    while True:
        typed = str(typer.prompt(question, default=default)).strip()
        if typed == "-" and default == "-":
            return typed
        try:
            return CHECKS[name](typed, name)
        except SettingsError as error:
            typer.echo(str(error), err=True)


def _listed(what: str, names: Callable[[], list[str]]) -> None:
    """Show what the key may see; without a key or a connection, say so and go on."""
    try:
        found = names()
    except PaiError as error:
        typer.echo(f"{what} cannot be listed: {str(error).splitlines()[0]}", err=True)
        return
    typer.echo(f"{what}:" if found else f"{what}: none")
    for name in found[:_SHOWN]:
        typer.echo(f"  {name}")
    if len(found) > _SHOWN:
        typer.echo(f"  … and {len(found) - _SHOWN} more")


def _bucket(session: Session, workspace: str) -> str | None:
    """The bucket of the workspace's default storage, if there is one and the key may see it."""
    try:
        path = session.workspaces.model_export_path(workspace)
    except PaiError:
        return None
    return str(path).partition("://")[2].partition("/")[0].partition(".")[0] or None


if __name__ == "__main__":
    run()
