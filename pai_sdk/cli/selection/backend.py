"""The backend that a command uses: its options `--embedded`, `--local` and `--profile`."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk._client.display.commands import commands_with_option
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.config.file import config_path_of
from pai_sdk._core.config.settings import profiles_of
from pai_sdk._core.default_session import session_module
from pai_sdk._core.endpoint import host_of
from pai_sdk.errors import SettingsError

if TYPE_CHECKING:
    from pai_sdk._client.session.session import Session
    from pai_sdk._service.settings import ServiceInfo

EMBEDDED_DATA = Path("~/.pai/service")
"""The data folder of the embedded service."""
Data = Annotated[Path, typer.Option("--data", help="The service's data folder.")]

_PANEL = "Where the jobs are"


@dataclass(frozen=True)
class SelectedBackend:
    """The backend that the options of a command select."""

    embedded: bool = False  # the embedded service of this machine
    local: bool = False  # Docker on this machine
    profile: str | None = None  # of the config file

    @property
    def is_explicit(self) -> bool:
        """Returns whether an option selects the backend; otherwise the settings do."""
        return self != ANYWHERE

    @property
    def option(self) -> str:
        """Returns the option that selects the backend, for commands that are printed."""
        if self.profile is not None:
            return f"--profile {self.profile}"
        return "--embedded" if self.embedded else "--local" if self.local else ""

    def describe(self) -> str:
        """Describes the backend, for messages; makes no request, and starts no embedded service."""
        if self.local:
            return "Docker on this machine"
        if self.embedded:
            return "the embedded service"
        session = session_module().get_default_session(local=True)
        settings = session.settings
        if session.is_embedded or settings.is_empty:
            return "the embedded service"
        where = settings.region_id if settings.endpoint is None else host_of(settings.pai_url)
        within = f", workspace {settings.workspace_id}" if settings.workspace_id else ""
        return f"{where}{within}" + (f" (profile {settings.profile})" if settings.profile else "")


ANYWHERE = SelectedBackend()
"""Without an option: the service of the settings, and Docker on this machine for existing jobs."""

_selection: ContextVar[SelectedBackend] = ContextVar("place", default=ANYWHERE)


def selected_backend() -> SelectedBackend:
    """Returns the backend that the options of the running command select."""
    return _selection.get()


def complete_profile(incomplete: str) -> list[str]:
    """Returns the profiles of the config file with a prefix, for completion by the shell."""
    try:
        return [name for name in profiles_of(config_path_of(os.environ)) if name.startswith(incomplete)]
    except SettingsError:
        return []


_Embedded = Annotated[
    bool, typer.Option("--embedded", help="The embedded service of this machine.", rich_help_panel=_PANEL)
]
_Local = Annotated[bool, typer.Option("--local", help="Docker on this machine.", rich_help_panel=_PANEL)]
_Profile = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A profile of the config file; defaults to PAI_PROFILE.",
        autocompletion=complete_profile,
        rich_help_panel=_PANEL,
    ),
]


def with_backend_options(command: Callable[..., None], *, with_local: bool = True) -> Callable[..., None]:
    """Adds the options `--embedded`, `--local` and `--profile` to a command of Typer."""

    @wraps(command)
    def run(*, embedded: bool = False, local: bool = False, profile: str | None = None, **arguments: Any) -> None:
        with _selected(SelectedBackend(embedded, local, profile)):
            command(**arguments)

    command_signature = inspect.signature(command, eval_str=True)
    options: dict[str, tuple[Any, Any]] = {"embedded": (_Embedded, False)}
    options |= {"local": (_Local, False)} if with_local else {}
    options |= {"profile": (_Profile, None)}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    parameters = [*command_signature.parameters.values(), *added]
    signature = command_signature.replace(
        parameters=[each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    # Typer reads both. `__wrapped__` is removed, because Typer would use the annotations of the wrapped command.
    vars(run).pop("__wrapped__")
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


@contextmanager
def _selected(selection: SelectedBackend) -> Iterator[None]:
    """Selects a backend in its block, also for the default session."""
    if selection.embedded + selection.local + (selection.profile is not None) > 1:
        raise typer.BadParameter("give only one of --embedded, --local and --profile")
    if selection.profile is not None and not selection.profile.strip():
        raise typer.BadParameter("is empty; give the name of a profile", param_hint="--profile")
    token = _selection.set(selection)
    try:
        with ExitStack() as stack:
            if selection.is_explicit and not selection.local:
                _select(selection, stack)  # the ids of jobs in Docker need no option
            yield
    finally:
        _selection.reset(token)


def _select(selection: SelectedBackend, stack: ExitStack) -> None:
    sessions = session_module()  # loads a session at its first use
    if selection.embedded:
        stack.enter_context(sessions.default_session_from(sessions.Session.embedded))
    elif selection.profile is not None:
        opener = partial(sessions.Session, profile=selection.profile)
        stack.enter_context(sessions.default_session_from(opener))
    stack.enter_context(commands_with_option(selection.option))


def running_service(data_dir: Path | None = None) -> ServiceInfo | None:
    """Returns the running service on a data folder, by default `~/.pai/service`; None if none is running."""
    from pai_sdk._service.embedded import find_running

    return find_running(data_dir)


def service_on(root: Path) -> ServiceInfo:
    """Returns the running service on a data folder; raises BadParameter without one."""
    service = running_service(root)
    if service is None:
        command = shlex.join(["pai-sdk", "serve", "--data", str(root)])
        raise typer.BadParameter(f"no service runs there; to start one: {command}", param_hint="--data")
    return service


def session_on(service: ServiceInfo) -> Session:
    """Creates a session on a service of this machine, with the service's own key."""
    session: Session = session_module().Session(
        service.region_id,
        service.workspace_id,
        endpoint=service.endpoint,
        aiworkspace_endpoint=service.endpoint,
        credentials=static_credentials(service.access_key_id, service.access_key_secret),
        profile="",
    )
    return session
