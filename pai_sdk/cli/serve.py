"""`pai-sdk serve`: the service in the foreground, for one machine or a team."""

from __future__ import annotations

import os
import shlex
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pai_sdk.cli import exit_codes
from pai_sdk.errors import ServiceStartError

if TYPE_CHECKING:
    from pai_sdk.service.settings import ServiceInfo

_DAY_S = 24 * 3600.0
_DATABASE_VARIABLE = "PAI_SERVICE_DATABASE"
_WHERE, _HOW_MUCH = "Where it runs", "How much it takes"


class _Executor(str, Enum):
    process = "process"
    docker = "docker"


def serve(
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; others than loopback open it to the network.", rich_help_panel=_WHERE
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.", rich_help_panel=_WHERE)
    ] = 8765,
    data: Annotated[Path, typer.Option(help="Folder for jobs, logs and objects.", rich_help_panel=_WHERE)] = Path(
        "~/.pai/service"
    ),
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=f"PostgreSQL in place of SQLite: postgresql+psycopg://user@host/name. With a password, better in "
            f"{_DATABASE_VARIABLE} or a file, which other users cannot see.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    database_file: Annotated[
        Path | None, typer.Option(help="A file that holds this URL.", rich_help_panel=_WHERE)
    ] = None,
    executor: Annotated[
        _Executor,
        typer.Option(
            help="What runs the jobs: processes here, or containers of Docker, from each job's image.",
            rich_help_panel=_WHERE,
        ),
    ] = _Executor.process,
    slots: Annotated[int, typer.Option(min=1, help="Instances that run at once.", rich_help_panel=_HOW_MUCH)] = 16,
    cpus: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="CPUs they may ask for, all together; not counted otherwise.", rich_help_panel=_HOW_MUCH
        ),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="GIB", help="Memory, likewise.", rich_help_panel=_HOW_MUCH),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=1, help="Requests a second that the key has.", rich_help_panel=_HOW_MUCH)
    ] = 1000,
    connections: Annotated[
        int, typer.Option(min=10, max=100_000, help="Connections at once.", rich_help_panel=_HOW_MUCH)
    ] = 1000,
    upload_life: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=36500,
            metavar="DAYS",
            help="How long an upload in parts may lie without a new part.",
            rich_help_panel=_HOW_MUCH,
        ),
    ] = 7,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with endpoint and key as the first line.")
    ] = False,
) -> None:
    """Serve the PAI API and an object store, until SIGTERM or Ctrl-C.

    Example: pai-sdk serve --port 8765 --data ./pai-data
    """
    try:
        from pai_sdk.service.server import serve as serve_until_told
        from pai_sdk.service.settings import ConnectionLimits, ServiceSettings
    except ImportError as error:
        typer.secho(
            f"error: the service is not installed ({error.name}): pip install 'pai-sdk[service]'",
            fg="red",
            err=True,
        )
        raise typer.Exit(exit_codes.ERROR) from error

    def ready(info: ServiceInfo) -> None:
        typer.echo(info.to_json() if as_json else _greeting(info))

    settings = ServiceSettings(
        data_dir=data.expanduser(),
        host=host,
        port=port,
        database_url=_database_url(database, database_file),
        executor=executor.value,
        slots=slots,
        cpus=cpus,
        memory_gib=memory,
        requests_per_s=rate,
        connections=ConnectionLimits(most=connections),
        upload_life_s=upload_life * _DAY_S,
    )
    serve_until_told(settings, on_ready=ready)


def _database_url(given: str | None, file: Path | None) -> str | None:
    # Removed from the environment, because the jobs of the service inherit it.
    from_environment = os.environ.pop(_DATABASE_VARIABLE, None)
    if given is not None and file is not None:
        raise typer.BadParameter("give --database or --database-file, not both")
    if given is not None:
        return given
    if file is None:
        return from_environment or None
    try:
        return file.expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServiceStartError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ServiceStartError(f"{file} holds no URL: it is no text") from error


def _read_secret(info: ServiceInfo) -> str:
    """A command that gives the secret: it can be pasted, and does not show the secret on the screen."""
    program = 'import json, sys; print(json.load(open(sys.argv[1]))["access_key_secret"])'
    return shlex.join(["python3", "-c", program, str(info.data_dir / "service.json")])


def _greeting(info: ServiceInfo) -> str:
    return "\n".join(
        [
            f"PAI API and object store on {info.endpoint}; Ctrl-C ends it.",
            "Point a shell at it:",
            f"  export PAI_REGION_ID={info.region_id} PAI_WORKSPACE_ID={info.workspace_id}",
            f"  export PAI_ENDPOINT={info.endpoint} PAI_AIWORKSPACE_ENDPOINT={info.endpoint}",
            f"  export PAI_OSS_ENDPOINT={info.oss_endpoint} PAI_OSS_BUCKET_NAME={info.bucket}",
            f"  export ALIBABA_CLOUD_ACCESS_KEY_ID={info.access_key_id}",
            f"  export ALIBABA_CLOUD_ACCESS_KEY_SECRET=$({_read_secret(info)})",
        ]
    )
