"""The service that `pai-sdk dlc` sends to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pai_sdk._client.api import workspaces
from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.api.transport import Transport
from pai_sdk._client.backend.connection import Connection
from pai_sdk._client.session import get_default_session
from pai_sdk._core.config.credentials import CredentialsProvider, provider_of
from pai_sdk._core.endpoint import scheme_and_host
from pai_sdk._wire.dlc.actions import API_VERSION
from pai_sdk.cli.dlc.config_file import DEFAULT_PATH, read_config
from pai_sdk.cli.dlc.flags import Arguments
from pai_sdk.cli.selection.backend import selected_backend
from pai_sdk.errors import SettingsError


@dataclass(frozen=True)
class DlcConnection:
    """Jobs of DLC, and the workspace of the settings; `to_backend` opens a backend for the same service."""

    jobs: DlcJobs
    workspace_id: str | None
    to_workspaces: Transport
    to_backend: Connection


def default_workspace() -> str | None:
    """Returns the workspace of the settings; starts no embedded service."""
    return get_default_session(local=True).settings.workspace_id


def connect(arguments: Arguments) -> DlcConnection:
    """Connects to the service that flags, config file or settings select."""
    values = _explicit_values(arguments)
    has_address = bool({"endpoint", "region"} & values.keys())
    session = get_default_session(local=has_address)  # with an address, no embedded service is started
    settings, credentials = session.settings, session.credentials
    if has_address or "access_id" in values:
        credentials = provider_of(values.get("access_id"), values.get("access_key"), None, None)
    if "endpoint" in values:
        url = workspace_url = _url(values["endpoint"], values.get("protocol"))
        if url.endswith(".aliyuncs.com"):
            workspace_url = url.replace("://pai-dlc", "://aiworkspace", 1)
    elif "region" in values:
        hosts = (f"{name}.{values['region']}.aliyuncs.com" for name in ("pai-dlc", "aiworkspace"))
        url, workspace_url = (_url(host, values.get("protocol")) for host in hosts)
    else:
        url, workspace_url = settings.dlc_url, settings.aiworkspace_url
    return DlcConnection(
        DlcJobs(_transport(url, credentials, API_VERSION)),
        settings.workspace_id,
        _transport(workspace_url, credentials, workspaces.VERSION),
        Connection(replace(settings, endpoint=settings.endpoint or url, dlc_endpoint=url), credentials),
    )


def _explicit_values(arguments: Arguments) -> dict[str, str]:
    """Returns the values of flags and of the config file; the file is not read if an option selects a backend."""
    file = arguments.text("config")
    values: dict[str, str] = {}
    if file is not None:
        values = read_config(Path(file).expanduser(), must_exist=True)
    elif not selected_backend().is_explicit and not arguments.boolean("ignore_local_config"):
        values = read_config(DEFAULT_PATH.expanduser(), must_exist=False)
    flags = {name: arguments.text(name) for name in ("access_id", "access_key", "endpoint", "region", "protocol")}
    if flags["region"] and not flags["endpoint"]:
        values.pop("endpoint", None)  # the endpoint in the file may be of another region
    return values | {name: value for name, value in flags.items() if value}


def _url(endpoint: str, protocol: str | None) -> str:
    if protocol not in (None, "http", "https"):
        raise SettingsError(f"--protocol: {protocol!r} is neither http nor https")
    scheme, host = scheme_and_host(endpoint)
    return f"{protocol if protocol and '://' not in endpoint else scheme}://{host}"


def _transport(url: str, credentials: CredentialsProvider, version: str) -> Transport:
    return Transport(url, credentials, version=version)
