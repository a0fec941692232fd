"""Workspaces of a service on this machine: `pai-sdk service workspace …`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from pai_sdk._core.paths import expanded
from pai_sdk._core.tables.table import Column, Table
from pai_sdk.cli.options import Json
from pai_sdk.cli.selection.backend import EMBEDDED_DATA, Data, service_on, session_on
from pai_sdk.cli.tables import print_json, print_table
from pai_sdk.cli.usage.help import Commands

app = Commands(
    help="The workspaces of the service, which separate teams.",
    example="pai-sdk service workspace list",
)

_Workspace = Annotated[str, typer.Argument(metavar="WORKSPACE", help="The id of the workspace.")]
_User = Annotated[str, typer.Argument(metavar="USER", help="The user.")]


@app.command()
def add(name: Annotated[str, typer.Argument(metavar="NAME")], data: Data = EMBEDDED_DATA) -> None:
    """Add a workspace without members, and print its id.

    Example: pai-sdk service workspace add vision
    """
    with session_on(service_on(expanded(data).absolute())) as session:
        typer.echo(session.workspaces.create(name).workspace_id)


@app.command(name="list")
def list_workspaces(data: Data = EMBEDDED_DATA, as_json: Json = False) -> None:
    """List the workspaces.

    Example: pai-sdk service workspace list
    """
    with session_on(service_on(expanded(data).absolute())) as session:
        workspaces = list(session.workspaces.list())
    if as_json:
        print_json([record.model_dump() for record in workspaces])
        return
    rows = [
        (record.workspace_id or "", record.workspace_name or "", "yes" if record.is_default else "")
        for record in workspaces
    ]
    print_table(Table((Column("WORKSPACE"), Column("NAME"), Column("DEFAULT")), rows))


@app.command()
def members(workspace: _Workspace, data: Data = EMBEDDED_DATA, as_json: Json = False) -> None:
    """List the members of a workspace, with their roles.

    Example: pai-sdk service workspace members 2
    """
    with session_on(service_on(expanded(data).absolute())) as session:
        records = list(session.workspaces.members(workspace))
    if as_json:
        print_json([record.model_dump() for record in records])
        return
    rows = [(record.member_id or "", " ".join(record.roles)) for record in records]
    print_table(Table((Column("USER"), Column("ROLES")), rows))


@app.command()
def member(
    workspace: _Workspace,
    user: _User,
    role: Annotated[
        Literal["WorkspaceAdmin", "AlgoDeveloper", "WorkspaceGuest"],
        typer.Option(help="As on PAI: guests read, developers submit jobs, administrators manage all jobs."),
    ] = "AlgoDeveloper",
    data: Data = EMBEDDED_DATA,
) -> None:
    """Add a user to a workspace, or change their role in it.

    Example: pai-sdk service workspace member 2 alice --role WorkspaceAdmin
    """
    with session_on(service_on(expanded(data).absolute())) as session:
        session.workspaces.add_member(workspace, user, role=f"PAI.{role}")
    typer.echo(f"{user}: PAI.{role} in workspace {workspace}")


@app.command()
def leave(workspace: _Workspace, user: _User, data: Data = EMBEDDED_DATA) -> None:
    """Remove a user from a workspace. Their jobs stay in it.

    Example: pai-sdk service workspace leave 1 alice
    """
    with session_on(service_on(expanded(data).absolute())) as session:
        session.workspaces.remove_member(workspace, user)
    typer.echo(f"{user} is not in workspace {workspace}")


@app.command()
def remove(workspace: _Workspace, data: Data = EMBEDDED_DATA) -> None:
    """Remove an empty workspace.

    Example: pai-sdk service workspace remove 2
    """
    with session_on(service_on(expanded(data).absolute())) as session:
        session.workspaces.delete(workspace)
    typer.echo(f"removed workspace {workspace}")
