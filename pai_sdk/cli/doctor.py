"""`pai-sdk doctor`: checks the requirements of a job, and prints a remedy for each error."""

from __future__ import annotations

import platform
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import typer

from pai_sdk._client.session import Session
from pai_sdk._core.config.settings import Settings, load_settings
from pai_sdk._core.extras import install_command
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._core.version import __version__
from pai_sdk._data.storage.tree import size_text
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.cli import exit_codes
from pai_sdk.cli.options import Json
from pai_sdk.cli.selection.backend import selected_backend
from pai_sdk.cli.tables import print_json, table_console, wrapped
from pai_sdk.errors import CredentialsError, PaiError, SettingsError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

_COLOURS = {"ok": "green", "note": "yellow", "broken": "red"}
_SUBJECT_WIDTH = 11
_INDENT = " " * (7 + _SUBJECT_WIDTH)


def doctor(as_json: Json = False) -> None:
    """Check settings, key, endpoints, bucket, Docker, clock, disk, versions; the exit code is 1 if a check fails.

    Example: pai-sdk doctor
    """
    broken = 0
    for finding in examine():
        broken += finding.health == "broken"
        if as_json:
            print_json(asdict(finding))
        else:
            _print(finding)
    if not as_json:
        typer.echo("\nno problems found" if not broken else f"\n{broken} broken")
    raise typer.Exit(exit_codes.ERROR if broken else exit_codes.SUCCEEDED)


def _print(finding: Finding) -> None:
    from rich.text import Text

    console = table_console()
    width = min(console.width, 120) - 1
    head = Text(finding.health.ljust(7), style=_COLOURS[finding.health]).append(
        finding.subject.ljust(_SUBJECT_WIDTH), style="bold"
    )
    width -= len(_INDENT)
    first, *more = wrapped(visible_text(finding.text), width)
    console.print(head.append(first, style="default not bold"), soft_wrap=True)
    for line in more:
        console.print(Text(_INDENT + line), soft_wrap=True)
    for number, line in enumerate(wrapped(finding.remedy, width - 2) if finding.remedy else ()):
        console.print(Text(_INDENT + ("  " if number else "→ ") + line, style="dim"), soft_wrap=True)


Health: TypeAlias = Literal["ok", "note", "broken"]
"""`note`: something that only some jobs need."""

_SERVICE_NEEDS = ("fastapi", "uvicorn", "httptools", "sqlalchemy", "psutil", "regex")
_REPORTED_PACKAGES = ("pydantic", "requests", "oss2", "docker", "typer", "rich")
_LOW_DISK_BYTES, _NO_DISK_BYTES = 5 << 30, 500 << 20
_ENDPOINT_SETTINGS = {"workspaces": "aiworkspace_endpoint", "storage": "oss_endpoint"}
_SKEW_S, _BROKEN_SKEW_S = 60.0, 600.0  # a signature is valid for 15 minutes
_RESPONSE_TIMEOUT_S = 10.0
_QUICK = RetryPolicy(deadline_s=8.0, max_attempts=2)


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    subject: str
    health: Health
    text: str
    remedy: str = ""  # what to do about it; empty if there is nothing to do


def examine() -> Iterator[Finding]:
    """Yields the result of each check as soon as it is available; takes seconds, longer without responses."""
    yield _versions()
    yield _disk()
    settings, session, findings = _session()
    yield from findings
    if session is not None:
        with session:
            yield from _service(settings, session)
    yield _docker()


def _versions() -> Finding:
    versions = [f"{name} {_version_of(name)}" for name in _REPORTED_PACKAGES]
    text = f"pai-sdk {__version__}, Python {platform.python_version()}, {platform.system()}; {', '.join(versions)}"
    return Finding("versions", "ok", text)


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _disk() -> Finding:
    home = Path.home()
    try:
        free = shutil.disk_usage(home).free
    except OSError as error:
        return Finding("disk", "broken", f"{home} cannot be read: {error.strerror or error}", "set HOME")
    text = f"{size_text(free)} free at {home}"
    if free < _LOW_DISK_BYTES:
        remedy = "run `pai-sdk service clean` or `pai-sdk prune`; `pai-sdk service status` shows what uses space"
        return Finding("disk", "broken" if free < _NO_DISK_BYTES else "note", text, remedy)
    return Finding("disk", "ok", text)


def _session() -> tuple[Settings, Session | None, list[Finding]]:
    """Returns the settings and a session for them; without settings, one on the embedded service."""
    try:
        settings = load_settings(profile="" if selected_backend().embedded else selected_backend().profile)
    except SettingsError as error:
        return Settings(), None, [Finding("settings", "broken", str(error), "see `pai-sdk config`")]
    if selected_backend().embedded or settings.is_empty:
        return _embedded(settings)
    findings = [_settings_finding(settings)]
    return settings, Session(retry=_QUICK, profile=settings.profile or ""), findings


def _embedded(settings: Settings) -> tuple[Settings, Session | None, list[Finding]]:
    reason = "nothing is set: " if settings.is_empty else ""
    findings = [Finding("settings", "ok", f"{reason}jobs go to the embedded service on this machine")]
    missing = [name for name in _SERVICE_NEEDS if find_spec(name) is None]
    if missing or sys.platform == "win32":
        text = f"is not installed ({', '.join(missing)})" if missing else "does not run on Windows"
        remedy = f"{install_command('service')}, or set a region: pai-sdk config set region_id cn-hangzhou"
        return settings, None, [*findings, Finding("service", "broken", f"the embedded service {text}", remedy)]
    started_at = time.monotonic()
    try:
        session = Session.embedded()
    except PaiError as error:
        remedy = "see its log, ~/.pai/service/service.log"
        return settings, None, [*findings, Finding("service", "broken", str(error), remedy)]
    findings.append(Finding("service", "ok", f"{session.settings.endpoint} responds{_elapsed_text(started_at)}"))
    return session.settings, session, findings


def _settings_finding(settings: Settings) -> Finding:
    where = settings.region_id or settings.endpoint
    text = (
        f"{where}, workspace {settings.workspace_id or 'not set'}, bucket {settings.oss_bucket_name or 'not set'}"
    )
    try:
        settings.require("workspace_id", "oss_bucket_name")
    except SettingsError as error:
        return Finding("settings", "broken", text, str(error))
    return Finding("settings", "ok", text)


def _service(settings: Settings, session: Session) -> Iterator[Finding]:
    key = _access_key(session)
    yield key
    try:
        endpoints = {"API": settings.pai_url, "workspaces": settings.aiworkspace_url, "storage": settings.oss_url}
    except SettingsError as error:
        yield Finding("endpoints", "broken", str(error), "pai-sdk config set region_id cn-hangzhou")
        return
    skews: list[float] = []
    reached: dict[str, bool] = {}
    for index, (name, url) in enumerate(endpoints.items()):
        if url not in [*endpoints.values()][:index]:  # a service of one's own has one for all
            finding = _reach(name, url, skews)
            setting = _ENDPOINT_SETTINGS.get(name, "")
            if finding.health != "ok" and settings.endpoint and setting and not getattr(settings, setting):
                remedy = f"{setting} is not set, so this is the host of the region; a service of your own needs it"
                finding = replace(finding, remedy=remedy)
            reached[url] = finding.health == "ok"
            yield finding
    yield from _clock(skews)
    if key.health != "ok":
        return
    if reached[endpoints["API"]]:
        yield _checked(
            "jobs",
            lambda: f"can be listed in workspace {settings.workspace_id or '(all)'}{_list_time(session)}",
            "grant the permissions of docs/alibaba-cloud.md; check the workspace with `pai-sdk config`",
        )
    if settings.oss_bucket_name and reached[endpoints["storage"]]:
        yield _bucket(session, settings.oss_bucket_name)


def _access_key(session: Session) -> Finding:
    try:
        key = session.credentials()
    except CredentialsError as error:
        first, _, remedy = str(error).partition("\n")
        return Finding("access key", "broken", first, remedy)
    except PaiError as error:
        return Finding("access key", "broken", str(error), "try again, or set a key in the environment")
    kind = "temporary" if key.security_token else "permanent"
    return Finding("access key", "ok", f"{key.access_key_id[:4]}…, {kind}")


def _reach(name: str, url: str, skews: list[float]) -> Finding:
    """Checks that an endpoint responds, and compares its clock with the local one."""
    import requests

    from pai_sdk._core.missing_response import diagnose

    started_at, requested_at = time.monotonic(), time.time()
    try:
        response = requests.get(url, timeout=_RESPONSE_TIMEOUT_S, allow_redirects=False)
    except requests.RequestException as error:
        remedy = (
            "check network, proxy (HTTPS_PROXY, NO_PROXY) and `pai-sdk config`; inside a VPC: set network to VPC"
        )
        return Finding(name, "broken", diagnose(error, url).sentence, remedy)
    try:
        served_at = parsedate_to_datetime(response.headers["date"]).timestamp()
        skews.append((requested_at + time.time()) / 2 - served_at)
    except (KeyError, ValueError, TypeError):
        pass  # no date, nothing to compare
    return Finding(name, "ok", f"{url} responds{_elapsed_text(started_at)}")


def _clock(skews: list[float]) -> Iterator[Finding]:
    if not skews:
        return
    skew_s = max(skews, key=abs)
    if abs(skew_s) < _SKEW_S:
        yield Finding("clock", "ok", "agrees with the service")
        return
    health: Health = "broken" if abs(skew_s) > _BROKEN_SKEW_S else "note"
    way = "ahead of" if skew_s > 0 else "behind"
    yield Finding(
        "clock",
        health,
        f"is {abs(skew_s):.0f} s {way} the service's",
        "correct it: a signature is valid for 15 minutes",
    )


def _list_time(session: Session) -> str:
    started_at = time.monotonic()
    for _ in islice(session.list_jobs(), 1):
        break
    return _elapsed_text(started_at)


def _bucket(session: Session, bucket: str) -> Finding:
    uri = OssUri(bucket, f"pai/doctor/{uuid.uuid4().hex}")

    def written_and_read() -> str:
        files: OssClient = session.files()
        started_at = time.monotonic()
        files.put_bytes(uri, b"pai-sdk doctor")
        try:
            files.get_bytes(uri)
        finally:
            files.delete(uri)
        return f"{bucket} can be written and read{_elapsed_text(started_at)}"

    remedy = "the key needs PutObject, GetObject and DeleteObject there: see docs/alibaba-cloud.md"
    return _checked("bucket", written_and_read, remedy)


def _checked(subject: str, check: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(subject, "ok", check())
    except PaiError as error:
        return Finding(subject, "broken", str(error), remedy)


def _docker() -> Finding:
    if sys.platform == "win32":
        return Finding("Docker", "note", "local jobs do not run on Windows", "use WSL, or instances of a service")
    from pai_sdk._host.execution.docker.engine import find_engine

    started_at = time.monotonic()
    try:
        engine = find_engine()
    except PaiError as error:
        first, _, attempts = str(error).partition(" Tried:\n")
        return Finding("Docker", "note", f"{first} Only instance_type='local' needs one.", f"tried:\n{attempts}")
    try:
        kind = "Podman" if engine.is_podman else "Docker"
        return Finding("Docker", "ok", f"{kind} at {engine.url} responds{_elapsed_text(started_at)}")
    finally:
        engine.close()


def _elapsed_text(started_at: float) -> str:
    return f", {1000 * (time.monotonic() - started_at):.0f} ms"
