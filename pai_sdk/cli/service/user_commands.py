"""Users of a service on this machine: `pai-sdk service user …` and `pai-sdk service audit`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pai_sdk._core.endpoint import with_scheme
from pai_sdk._core.paths import expanded
from pai_sdk._core.tables.table import Column, Table
from pai_sdk._wire.pai.wire import seconds_of
from pai_sdk.cli.options import Json, moment_of
from pai_sdk.cli.selection.backend import EMBEDDED_DATA, Data, service_on, session_on
from pai_sdk.cli.tables import print_json, print_table
from pai_sdk.cli.usage.help import Commands
from pai_sdk.errors import SettingsError

if TYPE_CHECKING:
    from pai_sdk._client.api.users import ServiceUsers
    from pai_sdk._service.settings import ServiceInfo
    from pai_sdk._wire.users import ServiceUser

app = Commands(
    help="The users of the service, each with keys and a bucket of their own.",
    example="pai-sdk service user add alice",
)

_NO_LIMIT = "none"
_Endpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where users reach the service, such as http://train.example.com:8765; by default as from here.",
    ),
]
_Expires = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="TIME",
        help="When the key ends: a duration from now such as 90d, or a time such as 2027-01-31T18:00+08:00 "
        "(in UTC without a zone); by default it does not end.",
    ),
]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
_Right = Annotated[
    Literal["read", "submit", "admin"],
    typer.Option(help="read: read jobs and files; submit: also run jobs; admin: everything, users too."),
]


def _limit_option(of: str) -> Any:
    return typer.Option(metavar="NUMBER", help=f"Maximum number of {of}; {_NO_LIMIT!r}: no limit.")


@app.command()
def add(
    name: _Name,
    right: _Right = "submit",
    workspace: Annotated[
        str | None, typer.Option(help="The id of their workspace, instead of the default one.")
    ] = None,
    expires: _Expires = None,
    endpoint: _Endpoint = None,
    data: Data = EMBEDDED_DATA,
    as_json: Json = False,
) -> None:
    """Add a user, and print the settings with which they use the service.

    The secret of the key is shown only once.

    Example: pai-sdk service user add alice
    """
    expires_at = _expiry(expires)
    with _users_on(data, endpoint) as (users, service):
        user = users.add(name, right=right, workspace_id=workspace)
        where = replace(service, workspace_id=workspace or service.workspace_id)
        _show_key(users, name, where, user.bucket or "", expires_at, as_json=as_json)


@app.command()
def key(
    name: _Name,
    expires: _Expires = None,
    endpoint: _Endpoint = None,
    data: Data = EMBEDDED_DATA,
    as_json: Json = False,
) -> None:
    """Create another key for a user, and print the settings with it.

    Example: pai-sdk service user key alice --expires 90d
    """
    expires_at = _expiry(expires)
    with _users_on(data, endpoint) as (users, service):
        bucket = next((user.bucket for user in users.list() if user.name == name), None)
        _show_key(users, name, service, bucket or "", expires_at, as_json=as_json)


@app.command(name="list")
def list_users(data: Data = EMBEDDED_DATA, as_json: Json = False) -> None:
    """List the users, with their rights, buckets and keys.

    Example: pai-sdk service user list
    """
    with _users_on(data) as (users, _):
        all_users = users.list()
    if as_json:
        print_json([user.model_dump() for user in all_users])
        return
    columns = (Column("USER"), Column("RIGHT"), Column("BUCKET"), Column("KEYS"))
    rows = [(user.name or "", user.right or "", user.bucket or "", _keys_text(user)) for user in all_users]
    print_table(Table(columns, rows))


@app.command()
def right(
    name: _Name,
    value: Annotated[Literal["read", "submit", "admin"], typer.Argument(metavar="RIGHT")],
    data: Data = EMBEDDED_DATA,
) -> None:
    """Change the role of a user: read, submit or admin. It takes effect immediately.

    Example: pai-sdk service user right alice read
    """
    with _users_on(data) as (users, _):
        users.set_right(name, value)
    typer.echo(f"{name}: {value}")


@app.command()
def quota(
    name: _Name,
    cpus: Annotated[str | None, _limit_option("CPUs of all their running jobs")] = None,
    gpus: Annotated[str | None, _limit_option("GPUs of all their running jobs")] = None,
    running: Annotated[str | None, _limit_option("running jobs")] = None,
    queued: Annotated[str | None, _limit_option("jobs in the queue")] = None,
    data: Data = EMBEDDED_DATA,
    as_json: Json = False,
) -> None:
    """Show the quota of a user and how much of it is used; with options, change it first.

    Running jobs continue, whatever they use.

    Example: pai-sdk service user quota alice --cpus 8 --gpus 1 --running 4
    """
    arguments = {"cpus": cpus, "gpus": gpus, "running": running, "queued": queued}
    changed = {resource: _limit(resource, text) for resource, text in arguments.items() if text is not None}
    with _users_on(data) as (users, _):
        state = users.quota(name)
        if changed:
            state = users.set_quota(
                name, **{resource: getattr(state.quota, resource) for resource in arguments} | changed
            )
    if as_json:
        print_json(state.to_dict())
        return
    rows = [
        (title, _limit_text(getattr(state.quota, resource)), f"{getattr(state.used, resource) or 0:g}")
        for resource, title in (("cpus", "CPUs"), ("gpus", "GPUs"), ("running", "running"), ("queued", "queued"))
    ]
    print_table(Table((Column("OF"), Column("QUOTA"), Column("USED")), rows))


@app.command()
def revoke(
    name: _Name, access_key_id: Annotated[str, typer.Argument(metavar="KEY")], data: Data = EMBEDDED_DATA
) -> None:
    """Revoke a key, effective immediately.

    Example: pai-sdk service user revoke alice LTAI0123456789abcdefghij
    """
    with _users_on(data) as (users, _):
        users.revoke(name, access_key_id)
    typer.echo(f"revoked {access_key_id}")


@app.command()
def remove(name: _Name, data: Data = EMBEDDED_DATA) -> None:
    """Remove a user with all keys. Their jobs and their bucket stay, for administrators.

    Example: pai-sdk service user remove alice
    """
    with _users_on(data) as (users, _):
        users.remove(name)
    typer.echo(f"removed {name}")


def audit(
    user: Annotated[str | None, typer.Option(help="Only requests of this user.")] = None,
    limit: Annotated[int, typer.Option("--most", min=1, help="The maximum number of entries.")] = 100,
    data: Data = EMBEDDED_DATA,
    as_json: Json = False,
) -> None:
    """Show the audit log, the newest entries first: who changed what, and which requests were refused.

    Example: pai-sdk service audit --user alice
    """
    with _users_on(data) as (users, _):
        entries = list(islice(users.audit(user=user), limit))
    if as_json:
        print_json([entry.model_dump() for entry in entries])
        return
    columns = [*map(Column, ("TIME", "USER", "STATUS", "REQUEST", "CREATED", "FROM"))]
    rows = [
        (
            entry.time or "",
            entry.user or "(the service)",
            str(entry.status),
            f"{entry.method} {entry.path}",
            _until(entry.created_id, entry.expiration),
            entry.client or "",
        )
        for entry in entries
    ]
    print_table(Table(columns, rows))


def _expiry(text: str | None) -> datetime | None:
    """Parses when a key ends. Before anything is created, it must be in the future."""
    if text is None:
        return None
    expires_at = moment_of(text, "--expires", is_ahead=True)
    if expires_at <= datetime.now(timezone.utc):
        raise typer.BadParameter(f"{text!r} is not in the future", param_hint="--expires")
    return expires_at


def _keys_text(user: ServiceUser) -> str:
    expirations = {key.access_key_id: key.expiration for key in user.access_keys}
    return ", ".join(_until(key_id, expirations.get(key_id)) for key_id in user.access_key_ids)


def _until(created_id: str | None, expiration: str | None) -> str:
    """Returns an id with the end of what it names, to the second."""
    expires_at = seconds_of(expiration)
    if expires_at is None:
        return created_id or ""
    moment = datetime.fromtimestamp(expires_at, timezone.utc)
    return f"{created_id} ({'until' if moment > datetime.now(timezone.utc) else 'expired'} {_utc(moment)})"


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _limit(resource: str, text: str) -> Any:
    """Parses a limit; returns None for no limit."""
    if text == _NO_LIMIT:
        return None
    try:
        return float(text) if resource == "cpus" else int(text)
    except ValueError:
        raise typer.BadParameter(f"--{resource}: {text[:60]!r} is neither a number nor {_NO_LIMIT!r}") from None


def _limit_text(limit: float | None) -> str:
    return "no limit" if limit is None else f"{limit:g}"


@contextmanager
def _users_on(data: Path, endpoint: str | None = None) -> Iterator[tuple[ServiceUsers, ServiceInfo]]:
    """Yields the users of a service, and the service with the endpoint for its users."""
    service = service_on(expanded(data).absolute())
    public = (
        service if endpoint is None else replace(service, endpoint=_url(endpoint), oss_endpoint=_url(endpoint))
    )
    with session_on(service) as session:
        yield session.users, public


def _url(endpoint: str) -> str:
    try:
        return with_scheme(endpoint)
    except SettingsError as error:
        raise typer.BadParameter(str(error), param_hint="--endpoint") from error


def _show_key(
    users: ServiceUsers,
    name: str,
    service: ServiceInfo,
    bucket: str,
    expires_at: datetime | None,
    *,
    as_json: bool,
) -> None:
    key = users.new_key(name, expires_at=expires_at)
    settings = {
        "PAI_REGION_ID": service.region_id,
        "PAI_WORKSPACE_ID": service.workspace_id,
        "PAI_ENDPOINT": service.endpoint,
        "PAI_AIWORKSPACE_ENDPOINT": service.endpoint,
        "PAI_OSS_ENDPOINT": service.oss_endpoint,
        "PAI_OSS_BUCKET_NAME": bucket,
        "ALIBABA_CLOUD_ACCESS_KEY_ID": key.access_key_id or "",
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET": key.access_key_secret or "",
    }
    if as_json:
        print_json(settings)
        return
    typer.echo(f"# {name} sets these in a shell; the secret is not shown again:")
    if expires_at is not None:
        typer.echo(f"# the key ends at {_utc(expires_at)}")
    for variable, value in settings.items():
        typer.echo(f"  export {variable}={shlex.quote(value)}")
