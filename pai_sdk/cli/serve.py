"""The service on this machine: `pai-sdk serve` and `pai-sdk service …`."""

from __future__ import annotations

import logging
import os
import shlex
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pai_sdk._client.display.base import duration_text
from pai_sdk._core.extras import install_command
from pai_sdk._core.paths import expanded
from pai_sdk._core.tables.table import Column, Table
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._data.storage.tree import size_text
from pai_sdk._host.execution.registry import EXECUTORS, executor_names
from pai_sdk.cli import exit_codes
from pai_sdk.cli.options import OBJECTS_KEY_VARIABLE, Json, duration_s, host_names, objects_uri, token_in
from pai_sdk.cli.selection.backend import EMBEDDED_DATA, Data, running_service
from pai_sdk.cli.service import team_command, user_commands, workspace_commands
from pai_sdk.cli.service.serve_files import read_price_list, read_watch_config
from pai_sdk.cli.tables import print_json, print_properties, print_table
from pai_sdk.cli.usage.help import Commands
from pai_sdk.errors import PaiError, ServiceStartError

if TYPE_CHECKING:
    from pai_sdk._data.storage.base import Store
    from pai_sdk._service.settings import ServiceInfo

logger = logging.getLogger(__name__)

_DAY_S = 24 * 3600.0
_DATABASE_VARIABLE = "PAI_SERVICE_DATABASE"
_where = partial(typer.Option, rich_help_panel="Where it runs")
_how_much = partial(typer.Option, rich_help_panel="Limits")


def _checked_executor(name: str) -> str:
    if name not in EXECUTORS and name not in executor_names():
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, executor_names()))}.")
    return name


def serve(
    host: Annotated[
        str, _where(help="Address to listen on; any other than loopback is open to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, _where(min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    name: Annotated[
        list[str] | None,
        _where(
            callback=host_names,
            help="A host name of this machine that browsers may use for the page; https://NAME behind a proxy "
            "that adds TLS; may be repeated.",
        ),
    ] = None,
    data: Annotated[Path, _where(help="Folder for jobs, logs and objects.")] = EMBEDDED_DATA,
    tls_cert: Annotated[
        Path | None,
        _where(
            help="Use TLS with the certificate in this file (PEM, with the CAs between it and the root). A "
            "renewed certificate is used without a restart."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, _where(help="The file of its private key (PEM, without a passphrase).")
    ] = None,
    metrics_token_file: Annotated[
        Path | None,
        _where(
            help="A file with a token with which Prometheus reads /metrics (Authorization: Bearer); created if "
            "missing."
        ),
    ] = None,
    database: Annotated[
        str | None,
        _where(
            metavar="URL",
            help="PostgreSQL in place of SQLite: postgresql+psycopg://user@host/name. Other users can see a "
            f"command line, so give a URL with a password in {_DATABASE_VARIABLE} or in --database-file.",
        ),
    ] = None,
    database_file: Annotated[Path | None, _where(help="A file that contains this URL.")] = None,
    objects: Annotated[
        str | None,
        _where(
            metavar="URI",
            callback=objects_uri,
            help="Keep the large contents of objects in s3://bucket/prefix or oss://bucket/prefix, not in the "
            "data folder.",
        ),
    ] = None,
    objects_endpoint: Annotated[str | None, _where(metavar="URL", help="The endpoint of --objects.")] = None,
    objects_region: Annotated[str | None, _where(metavar="NAME", help="The region of --objects.")] = None,
    objects_key_file: Annotated[
        Path | None,
        _where(
            help=f"A file with the key of --objects as ID:SECRET; or give it in {OBJECTS_KEY_VARIABLE}. Without "
            "it, the key that the tools of AWS or Alibaba Cloud would use."
        ),
    ] = None,
    standby: Annotated[
        bool,
        _where(
            "--standby",
            help="Wait while another service uses the PostgreSQL database, and take over when it exits.",
        ),
    ] = False,
    executor: Annotated[
        str,
        _where(
            metavar="NAME",
            callback=_checked_executor,
            autocompletion=executor_names,
            help="What runs the jobs: process: processes here; docker: containers, from each job's image; ray: "
            "processes on the nodes of a Ray cluster; slurm: likewise of a Slurm cluster; or an executor of an "
            "installed package.",
        ),
    ] = "process",
    executor_option: Annotated[
        list[str] | None,
        _where(metavar="NAME=VALUE", help="An option that only this executor has; may be repeated."),
    ] = None,
    ray_address: Annotated[
        str | None,
        _where(
            help="The cluster of --executor ray: auto, host:port or ray://host:port; short for "
            "--executor-option address=…"
        ),
    ] = None,
    notify_allow: Annotated[
        list[str] | None,
        _where(
            metavar="CIDR|HOST",
            help="Also send messages about jobs (`notify`) to this network or host; by default, to public "
            "addresses only. May be repeated.",
        ),
    ] = None,
    watch_config: Annotated[
        Path | None,
        _where(
            metavar="FILE",
            help="A file with rules about running jobs, for all workspaces and for some; YAML or JSON.",
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        _where(
            metavar="FILE",
            help="A file with the prices of instances per hour, for the costs of jobs; YAML or JSON.",
        ),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], _where(help="Log lines of text, or JSON objects, one per line, to stderr.")
    ] = "text",
    access_log: Annotated[bool, _where("--access-log", help="Log a line for each request.")] = False,
    slots: Annotated[int, _how_much(min=1, help="The maximum number of instances that run at once.")] = 16,
    cpus: Annotated[
        float | None,
        _how_much(min=0.1, help="CPUs that running instances may request in total; no limit by default."),
    ] = None,
    memory: Annotated[
        float | None,
        _how_much(
            min=0.1, metavar="GIB", help="Memory that running instances may request in total; no limit by default."
        ),
    ] = None,
    rate: Annotated[float, _how_much(min=1, help="Maximum requests per second with the key.")] = 1000,
    connections: Annotated[int, _how_much(min=10, max=100_000, help="Maximum number of open connections.")] = 1000,
    upload_life: Annotated[
        float,
        _how_much(
            min=0.01,
            max=36500,
            metavar="DAYS",
            help="Delete an unfinished multipart upload after this time without a new part.",
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
        from pai_sdk._service.server import serve as serve_until_stopped
        from pai_sdk._service.settings import ConnectionLimits, ServiceSettings
    except ImportError as error:
        typer.secho(
            f"error: the service is not installed ({error.name}): {install_command('service')}",
            fg="red",
            err=True,
        )
        raise typer.Exit(exit_codes.ERROR) from error

    def ready(info: ServiceInfo) -> None:
        typer.echo(info.to_json() if as_json else _greeting(info))

    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("give --tls-cert and --tls-key, or neither", param_hint="--tls-cert")

    def stands_by(url: str) -> None:
        typer.echo(f"standing by on {url} for the service that has the database", err=True)

    database_url = _database_url(database, database_file)
    if standby and database_url is None:
        raise typer.BadParameter("it needs a PostgreSQL database: give --database.", param_hint="--standby")
    settings = ServiceSettings(
        data_dir=data.expanduser(),
        host=host,
        names=tuple(name or ()),
        port=port,
        database_url=database_url,
        standby=standby,
        executor=executor,
        executor_options=_executor_options(executor, executor_option or [], ray_address),
        slots=slots,
        cpus=cpus,
        memory_gib=memory,
        requests_per_s=rate,
        connections=ConnectionLimits(max_connections=connections),
        upload_life_s=upload_life * _DAY_S,
        objects=_objects(objects, objects_endpoint, objects_region, objects_key_file),
        tls_cert=tls_cert,
        tls_key=tls_key,
        notify_allow=tuple(notify_allow or ()),
        access_log=access_log,
        log_format=log_format,
        watch=read_watch_config(watch_config),
        prices=read_price_list(prices),
        metrics_token=None if metrics_token_file is None else token_in(expanded(metrics_token_file)),
    )
    try:
        serve_until_stopped(settings, on_ready=ready, on_standby=stands_by)
    except PaiError as error:
        if log_format == "text":
            raise
        logger.critical("%s", error)
        raise typer.Exit(exit_codes.ERROR) from error


def _objects(uri: str | None, endpoint: str | None, region: str | None, key_file: Path | None) -> Store | None:
    from pai_sdk.cli.service.external_objects import objects_store, read_key

    key = read_key(key_file)
    if uri is None:
        if endpoint is not None or region is not None or key_file is not None:
            raise typer.BadParameter("give it, too.", param_hint="--objects")
        return None
    return objects_store(uri, endpoint=endpoint, region=region, key=key)


def _executor_options(executor: str, options: list[str], ray_address: str | None) -> dict[str, str]:
    parsed = {}
    for text in options:
        name, separator, value = text.partition("=")
        if not (separator and name):
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint="--executor-option")
        if name in parsed:
            raise typer.BadParameter(f"{name!r} is defined more than once.", param_hint="--executor-option")
        parsed[name] = value
    if ray_address is not None:
        if executor != "ray":
            raise typer.BadParameter("it is for --executor ray only.", param_hint="--ray-address")
        if "address" in parsed:
            raise typer.BadParameter("give either it or --executor-option address=….", param_hint="--ray-address")
        parsed["address"] = ray_address
    return parsed


def _database_url(url: str | None, file: Path | None) -> str | None:
    # Removed from the environment, because the jobs of the service inherit it.
    from_environment = os.environ.pop(_DATABASE_VARIABLE, None)
    if url is not None and file is not None:
        raise typer.BadParameter("give --database or --database-file, not both")
    if url is not None:
        return url
    if file is None:
        return from_environment or None
    try:
        return file.expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServiceStartError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ServiceStartError(f"{file} does not contain a URL: it is not a text file") from error


def _read_secret(info: ServiceInfo) -> str:
    """Returns a command that prints the secret, so that the greeting does not contain the secret itself."""
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
            "To open the page of its jobs in a browser:",
            f"  {shlex.join(['pai-sdk', 'ui', '--data', str(info.data_dir)])}",
        ]
    )


app = Commands(
    help="The service on this machine: show its state and disk use, stop it, free disk space, back it up.",
    example="pai-sdk service status",
)

app.add_typer(user_commands.app, name="user")
app.add_typer(workspace_commands.app, name="workspace")
app.command()(user_commands.audit)
app.command()(team_command.compose)


DatabaseFile = Annotated[Path | None, typer.Option(help="A file with the URL of the PostgreSQL database.")]


@app.command()
def status(data: Data = EMBEDDED_DATA, as_json: Json = False) -> None:
    """Show whether the service is running, and its disk usage.

    The exit code is 0 if it is running, otherwise 102.

    Example: pai-sdk service status
    """
    root = expanded(data).absolute()
    idle_s = _idle_s(root)  # before `running_service`, which makes a request itself
    running = running_service(root)
    holdings = _holdings().holdings(root)
    if as_json:
        state: dict[str, Any] = {
            "data": str(root),
            "running": running is not None,
            "holds": [asdict(h) for h in holdings],
        }
        if running is not None:
            state |= {
                "endpoint": running.endpoint,
                "pid": running.pid,
                "version": running.version,
                "idle_s": idle_s,
            }
        print_json(state)
    else:
        print_properties(_state_rows(root, running, idle_s))
        typer.echo("")
        rows = [
            (h.kind, size_text(h.size_bytes), "" if h.count is None else str(h.count))
            for h in holdings
            if h.size_bytes
        ]
        total = sum(h.size_bytes for h in holdings)
        columns = (Column("HOLDS"), Column("SIZE", align="right"), Column("COUNT", align="right"))
        print_table(Table(columns, [*rows, ("all", size_text(total), "")]))
    raise typer.Exit(exit_codes.SUCCEEDED if running is not None else exit_codes.NOT_FOUND)


@app.command()
def stop(data: Data = EMBEDDED_DATA) -> None:
    """Stop the service. Running jobs continue; the next command or session that needs it starts it again.

    Example: pai-sdk service stop
    """
    from pai_sdk._service.embedded import stop_running

    stopped = stop_running(expanded(data))
    typer.echo(
        "no service is running" if stopped is None else f"stopped {stopped.endpoint} (process {stopped.pid})"
    )


@app.command()
def clean(
    older_than: Annotated[
        str, typer.Option(help="Only data that has not been used for this time: 7d, 12h, 30m, 0.")
    ] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed.")] = False,
    data: Data = EMBEDDED_DATA,
) -> None:
    """Remove Python environments, downloads of pip, and file copies of finished jobs.

    Jobs, logs and objects stay; `pai-sdk prune --service` removes jobs.

    Example: pai-sdk service clean --older-than 0 --dry-run
    """
    seconds, count, size_bytes = duration_s(older_than, "--older-than"), 0, 0
    for removal in _holdings().clean(expanded(data).absolute(), older_than_s=seconds, dry_run=dry_run):
        typer.echo(f"{size_text(removal.size_bytes):>10}  {visible_text(removal.description)}")
        count, size_bytes = count + 1, size_bytes + removal.size_bytes
    if not count:
        typer.echo("nothing to remove")
    else:
        typer.echo(f"{'would free' if dry_run else 'freed'} {size_text(size_bytes)}")


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    data: Data = EMBEDDED_DATA,
    database_file: DatabaseFile = None,
    as_json: Json = False,
) -> None:
    """Copy jobs, logs, objects, tables and keys of the service into a folder, also while it is running.

    Where PostgreSQL keeps the jobs, its URL is read from PAI_SERVICE_DATABASE or --database-file. The folder has
    the keys of the service; only its owner can read it.

    Example: pai-sdk service backup ./backup-monday
    """
    _copy("back_up", data, target, database_file, as_json)


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="A folder that `pai-sdk service backup` wrote.")],
    data: Data = EMBEDDED_DATA,
    database_file: DatabaseFile = None,
    objects: Annotated[
        str | None,
        typer.Option(metavar="URI", help="The --objects of the service that was backed up, if it had one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Restore a backup into a new data folder; `pai-sdk serve --data` then serves it.

    The folder must not exist yet. Every file is compared with its checksum first. With a URL in
    PAI_SERVICE_DATABASE or --database-file, the jobs go into that database, which must be empty.

    Example: pai-sdk service restore ./backup-monday --data ./pai-data
    """
    _copy("restore", source, data, database_file, as_json, objects_uri=objects)


def _copy(
    operation: Literal["back_up", "restore"],
    source: Path,
    target: Path,
    database_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    from pai_sdk._service.services import backup as backups

    action = backups.back_up if operation == "back_up" else backups.restore
    url = _database_url(None, database_file)
    paths = expanded(source).absolute(), expanded(target).absolute()
    contents = action(*paths, database_url=url, report=lambda step: typer.echo(f"{step} …", err=True), **options)
    if as_json:
        print_json(asdict(contents))
    else:
        created_at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(contents.made_at))
        typer.echo(f"{contents.files} files, {size_text(contents.size_bytes)}, made {created_at}")


def _holdings() -> ModuleType:
    from pai_sdk._service.services import inventory as holdings  # not on Windows, where no service runs

    return holdings


def _state_rows(root: Path, running: ServiceInfo | None, idle_s: float | None) -> list[tuple[str, str]]:
    rows = [("service", "running" if running is not None else "not running")]
    if running is not None:
        embedded = "embedded, ends after 30 minutes without a request, a job or a schedule"
        kind = embedded if running.embedded else "started by `pai-sdk serve`"
        rows += [
            ("endpoint", running.endpoint),
            ("process", f"{running.pid} ({kind})"),
            ("version", running.version or "unknown"),
        ]
    if idle_s is not None:
        rows.append(("last request", f"{duration_text(idle_s)} ago"))
    return [*rows, ("data", str(root))]


def _idle_s(root: Path) -> float | None:
    """Returns seconds since the last accepted request, whose signature was written to a file; None if unknown."""
    try:
        return max(0.0, time.time() - (root / "nonces").stat().st_mtime)
    except OSError:
        return None
