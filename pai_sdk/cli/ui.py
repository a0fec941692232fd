"""`pai-sdk ui`: opens the page of the service in use, or serves one for the runs of a folder."""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from pai_sdk._client.backend.specs import backend_for_job
from pai_sdk._client.session.default import default_session_from, get_default_session
from pai_sdk._client.session.session import Session
from pai_sdk._core.endpoint import host_of, is_loopback
from pai_sdk._core.extras import install_command
from pai_sdk._core.paths import expanded
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._data.pipelines.folder_runs import FolderRuns
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk.cli import exit_codes
from pai_sdk.cli.options import host_names, token_in
from pai_sdk.cli.run_commands import run_id_in
from pai_sdk.cli.selection.backend import selected_backend, service_on, session_on
from pai_sdk.cli.selection.job_names import JOB_HELP, complete_job, find_job

if TYPE_CHECKING:
    from pai_sdk._service.web.ui_app import UiServer

_HOST = "127.0.0.1"
_PORT = 6007
_of_folder = partial(typer.Option, rich_help_panel="Options for a folder of runs")
_of_service = partial(typer.Option, rich_help_panel="Options for the service in use")
_CONSOLE = "https://pai.console.aliyun.com/"


def ui(
    folder: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="A folder of runs, or its URI; without it, the service in use."),
    ] = None,
    logdir: Annotated[str | None, _of_folder(metavar="DIR", help="Alias of DIR, as in TensorBoard.")] = None,
    job: Annotated[
        str | None,
        _of_service(
            metavar="JOB",
            help=f"Show this job. {JOB_HELP}",
            autocompletion=complete_job,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        _of_service(metavar="FOLDER", help="The service of this data folder."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Show this run: an id, a name, or - for the newest.",
            autocompletion=complete_job,
        ),
    ] = None,
    host: Annotated[
        str | None,
        _of_folder(
            help=f"Address to listen on, {_HOST} by default; any other than loopback is open to the network."
        ),
    ] = None,
    port: Annotated[
        int | None, _of_folder(min=0, max=65535, help=f"Port, {_PORT} by default; 0 takes a free one.")
    ] = None,
    name: Annotated[
        list[str] | None,
        _of_folder(
            callback=host_names,
            help="A host name of this machine that browsers may use in the URL; https://NAME behind a proxy that "
            "adds TLS; may be repeated.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        _of_folder(help="A file with a token for programs (Authorization: Bearer); created if missing."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show jobs, logs and curves in the browser: of the current service, or of a folder of runs.

    Without DIR, this prints a link to the page of the service and exits; it starts the embedded service if needed.

    With DIR, it serves the page of the runs in that folder until Ctrl-C. Press Enter for a new link.

    A link works for one browser, within a minute of being printed; the browser then stays signed in for a week.

    Example: pai-sdk ui --open
    """
    if folder is not None and logdir is not None:
        raise typer.BadParameter("give the folder once", param_hint="--logdir")
    root = folder or logdir
    if root is None:
        of_folder = {"--host": host, "--port": port, "--name": name or None, "--token-file": token_file}
        _refuse(of_folder, "is for a folder of runs: pai-sdk ui DIR; without DIR, the service serves the page")
        with _service_on(data):
            _show_service(job, run, open_browser=open_browser)
        return
    selection = selected_backend()
    of_service = {
        "--job": job,
        "--data": data,
        "--embedded": selection.embedded or None,
        "--profile": selection.profile,
    }
    _refuse(of_service, "is for the page of a service; leave DIR out")
    _serve_folder(root, host or _HOST, _PORT if port is None else port, name, token_file, run, open_browser)


def _refuse(options: dict[str, Any], reason: str) -> None:
    """Raises BadParameter for the first option that has a value."""
    for option, value in options.items():
        if value is not None:
            raise typer.BadParameter(reason, param_hint=option)


# ---- the page of a service


@contextlib.contextmanager
def _service_on(data: Path | None) -> Iterator[None]:
    """Makes the service on a data folder the service in use, in its block; does nothing without a folder."""
    if data is None:
        yield
        return
    if selected_backend().is_explicit:
        raise typer.BadParameter("give only one of --data, --embedded and --profile", param_hint="--data")
    root = expanded(data).absolute()
    with default_session_from(partial(session_on, service_on(root))):
        yield


def _show_service(job: str | None, run: str | None, *, open_browser: bool) -> None:
    if job is not None and run is not None:
        raise typer.BadParameter("give only one of --job and --run")
    session = get_default_session()
    _require_page(session)
    shown = job or run
    link = session.new_page_link(_id_of(shown) if shown is not None else None)
    typer.echo(f"The page of {selected_backend().describe()}. Open this link within a minute; it works once:")
    typer.echo(f"  {link}")
    address = urlsplit(link)
    if is_loopback(f"{address.scheme}://{address.netloc}"):
        typer.echo(
            "For a browser on another machine, run this there, then open the link there:\n"
            f"  ssh -N -L {address.port}:{address.netloc} {socket.gethostname()}"
        )
    if open_browser:
        typer.launch(link)


def _require_page(session: Session) -> None:
    """Raises BadParameter if the jobs are on Alibaba Cloud, which has a console of its own."""
    if host_of(session.settings.pai_url).endswith(".aliyuncs.com"):
        raise typer.BadParameter(
            f"the jobs are on Alibaba Cloud's PAI ({selected_backend().describe()}): its console, {_CONSOLE}, "
            "shows them. For the runs in a folder: pai-sdk ui DIR; for jobs on this machine: "
            "pai-sdk ui --embedded",
            param_hint="DIR",
        )


def _id_of(job: str) -> str:
    training_job = find_job(job)
    if backend_for_job(training_job.id).is_local:
        message = f"{training_job.id} runs in Docker on this machine, outside of the service that serves the page"
        raise typer.BadParameter(message, param_hint="--job")
    return training_job.id


# ---- the page of a folder


def _serve_folder(
    root: str,
    host: str,
    port: int,
    names: list[str] | None,
    token_file: Path | None,
    run: str | None,
    open_browser: bool,
) -> None:
    try:
        from pai_sdk._service.web.ui_app import UiServer, UiSettings
    except ImportError as error:
        message = f"error: the server is not installed ({error.name}): {install_command('service')}"
        typer.secho(message, fg="red", err=True)
        raise typer.Exit(exit_codes.ERROR) from error
    location = root if uri_scheme(root) is not None else expanded(Path(root))
    if isinstance(location, Path) and not location.is_dir():
        raise typer.BadParameter(f"there is no folder {str(location)!r}", param_hint="DIR")
    run_id = run_id_in(str(location), run) if run is not None else None
    token = token_in(token_file.expanduser()) if token_file is not None else ""
    pipelines = FolderRuns(location) if isinstance(location, Path) else None
    server = UiServer(UiSettings(location, host, port, tuple(names or ()), token, pipelines))
    with contextlib.suppress(KeyboardInterrupt):
        server.run(lambda: _print_link(server, location, run_id, open_browser=open_browser))


def _print_link(server: UiServer, location: str | Path, run: str | None, *, open_browser: bool) -> None:
    gc.freeze()  # the garbage collector, which stops all threads, then skips all imported modules
    link = server.new_link(run)
    absolute = location.absolute() if isinstance(location, Path) else location
    typer.echo(f"Runs in {visible_text(str(absolute))} on {server.url}; Ctrl-C stops the server.")
    typer.echo(f"Open this link within a minute; it works once:\n  {link}")
    if open_browser:
        typer.launch(link)
    if sys.stdin is not None and sys.stdin.isatty():
        typer.echo("Press Enter for a new link.")
        # A daemon, because nothing can interrupt its read of stdin.
        threading.Thread(target=_print_links, args=(server,), name="links", daemon=True).start()


def _print_links(server: UiServer) -> None:
    for _ in sys.stdin:
        typer.echo(f"  {server.new_link()}")
