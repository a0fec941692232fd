"""The embedded service: found if it runs, otherwise started; all processes of a user share one."""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import re
import signal
import ssl
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from pai_sdk._core.detached import start_detached
from pai_sdk._core.extras import install_command
from pai_sdk._core.files import locked, publish_once
from pai_sdk._core.version import __version__
from pai_sdk._data.storage.progress import ElapsedTime
from pai_sdk._service.settings import DEFAULT_DATA_DIR, ServiceInfo
from pai_sdk._service.state.folder import is_locked, read_info, refuse_foreign
from pai_sdk._wire.signature import ACS3, acs3_signature, payload_hash
from pai_sdk.errors import ServiceStartError

logger = logging.getLogger(__name__)

_EXECUTOR_FILE = "executor.json"
_IDLE_TIMEOUT_S = 30 * 60
_PROBE_TIMEOUT_S = 3.0
# A service on a machine with a load of 30 took seconds to respond. One that has ended refuses connections at once.
_PATIENT_PROBE_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.02
_NUM_LOG_LINES = 15
_REQUIRED_PACKAGES = (
    "fastapi",
    "uvicorn",
    "httptools",
    "sqlalchemy",
    "psutil",
    "regex",
    "prometheus_client",
    "cronsim",
)
# Other processes use the service too, so it must not inherit the keys and settings of the process that starts it.
_WITHHELD_PREFIXES = ("ALIBABA_CLOUD_", "ALIBABACLOUD_", "OSS_", "PAI_")


@dataclass(frozen=True)
class ChosenExecutor:
    """The executor of an embedded service. It belongs to the data folder, which stores it.

    Attributes:
        name: one of `pai_sdk._host.execution.registry.executor_names`.
        options: options of this executor only, such as the `address` of a cluster.
    """

    name: str = "process"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def default_folder(self) -> Path:
        """Returns the data folder of a user's service with this executor, if no other is given."""
        folder = Path(DEFAULT_DATA_DIR).expanduser()
        if self.name == "process":
            return folder
        digest = hashlib.sha256(json.dumps(dict(self.options), sort_keys=True).encode()).hexdigest()[:8]
        return folder.with_name(f"{folder.name}-{self.name}{f'-{digest}' if self.options else ''}")

    @classmethod
    def of_folder(cls, root: Path) -> ChosenExecutor:
        """Returns the executor that a data folder has stored."""
        try:
            return cls(**json.loads((root / _EXECUTOR_FILE).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()


def ensure_running(
    data_dir: Path | None = None, *, executor: ChosenExecutor | None = None, timeout_s: float = 120.0
) -> ServiceInfo:
    """Returns the service on a data folder; starts it if it does not run.

    Args:
        data_dir: its folder; by default `~/.pai/service`, or `executor.default_folder`.
        executor: runs its jobs; by default the one that the folder has stored, or processes.
        timeout_s: the time limit until it responds.

    Raises:
        ServiceStartError: it does not start; the message has the last lines of its log.

    Example:
        >>> ensure_running().endpoint  # doctest: +SKIP
        'http://127.0.0.1:40213'
    """
    root = (data_dir or (executor or ChosenExecutor()).default_folder).expanduser().absolute()
    deadline = time.monotonic() + timeout_s
    if executor is not None:
        _record_executor(root, executor)
    # First without the start lock: in most calls, the service runs.
    running = _running(root)
    if running is not None and not _is_outdated(running):
        return running
    missing = [name for name in _REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ServiceStartError(
            f"the embedded service needs {', '.join(missing)}; install them: {install_command('service')}"
        )
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Before a lock and a log are created there.
        refuse_foreign(root)
        with _start_lock(root, deadline):
            # Checked again: another process may have started it during the wait for the lock.
            running = _running(root)
            if running is not None and _is_outdated(running):
                _stop_outdated(running, deadline)
            elif running is not None:
                return running
            with ElapsedTime("starting the embedded service") as sign:
                return _start(root, deadline, sign)
    except OSError as error:
        raise ServiceStartError(
            f"the data folder {root} cannot be used: {error.strerror or error}; choose another one"
        ) from error


def _record_executor(root: Path, executor: ChosenExecutor) -> None:
    """Records the executor of a data folder before the first start of its service."""
    file = root / _EXECUTOR_FILE
    if not file.exists() and executor != ChosenExecutor() and read_info(root) is None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_foreign(root)
        # Several processes may start at once: the first executor wins, and the others compare with it below.
        publish_once(file, json.dumps(asdict(executor)))
    recorded = ChosenExecutor.of_folder(root)
    if recorded != executor:
        raise ServiceStartError(
            f"the data folder {root} belongs to the executor {recorded.name!r} with the options "
            f"{dict(recorded.options)}; choose another data_dir for {executor.name!r}"
        )


def find_running(data_dir: Path | None = None) -> ServiceInfo | None:
    """Returns the service that runs on a data folder and responds within half a minute, or None; starts none.

    Args:
        data_dir: its folder; by default `~/.pai/service`.
    """
    root = (data_dir or Path(DEFAULT_DATA_DIR)).expanduser().absolute()
    return _running(root, timeout_s=_PATIENT_PROBE_TIMEOUT_S)


def stop_running(data_dir: Path | None = None, *, timeout_s: float = 30.0) -> ServiceInfo | None:
    """Stops the service of a data folder, as by Ctrl-C. Its jobs continue, and the next service resumes them.

    Args:
        data_dir: its folder; by default `~/.pai/service`.
        timeout_s: the time limit.

    Returns:
        The service that was stopped; None if none ran.

    Raises:
        ServiceStartError: it does not exit in time, or its process is unknown.

    Example:
        >>> stop_running(Path("/tmp/no-such-folder"))
    """
    root = (data_dir or Path(DEFAULT_DATA_DIR)).expanduser().absolute()
    if not is_locked(root):
        return None
    info = read_info(root)
    if info is None or not info.pid:
        raise ServiceStartError(f"a service runs on {root}, but its process cannot be identified yet; try again")
    if not _terminate(info, time.monotonic() + timeout_s):
        raise ServiceStartError(f"the service on {root} (process {info.pid}) does not end; end that process")
    return info


def _running(root: Path, *, timeout_s: float = _PROBE_TIMEOUT_S) -> ServiceInfo | None:
    if not is_locked(root):
        return None
    info = read_info(root)
    # Without a process id, no service has been ready on this folder yet.
    if info is None or not info.pid or not _responds(info, timeout_s):
        return None
    # Read again: the responding service may have started during the request.
    return read_info(root)


def _is_outdated(running: ServiceInfo) -> bool:
    """Returns whether a client of an older release started it. A service that a user started is never replaced."""
    return running.embedded and _numbers(running.version) < _numbers(__version__)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _terminate(running: ServiceInfo, deadline: float) -> bool:
    """Stops a service, as by Ctrl-C; returns False if its folder is still locked at the deadline."""
    with suppress(ProcessLookupError):
        # The caller has seen that the folder is locked: the process id alone may belong to another program by now.
        os.kill(running.pid, signal.SIGTERM)
    # The lock, not the process: a zombie still has its id, and the next service needs only the lock.
    while is_locked(running.data_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL_S)
    return True


def _stop_outdated(running: ServiceInfo, deadline: float) -> None:
    """Stops a service that this release replaces; its jobs continue, and the next service resumes them."""
    logger.info(
        "the embedded service runs pai-sdk %s; it is restarted with pai-sdk %s", running.version, __version__
    )
    if not _terminate(running, deadline):
        raise ServiceStartError(
            f"the embedded service of pai-sdk {running.version} (process {running.pid}) does not end, so that "
            f"one of {__version__} cannot replace it; end that process"
        )


def _start(root: Path, deadline: float, progress: ElapsedTime) -> ServiceInfo:
    # Locked without a response: it is starting or stopping.
    child = None if is_locked(root) else _spawn(root)
    while time.monotonic() < deadline:
        running = _running(root)
        if running is not None:
            return running
        # Killed from outside: that says nothing about another start.
        was_killed = child is not None and (child.poll() or 0) < 0
        if (child is None or was_killed) and not is_locked(root):
            child = _spawn(root)
        elif child is not None and not was_killed and child.poll() is not None:
            raise ServiceStartError(
                f"the embedded service ended with exit code {child.returncode} while starting.{_log_tail(root)}"
            )
        progress.refresh()
        time.sleep(_POLL_INTERVAL_S)
    raise ServiceStartError(f"the embedded service on {root} does not respond in time.{_log_tail(root)}")


def _spawn(root: Path) -> subprocess.Popen[bytes]:
    """Starts the service in its own session: it outlives this process and its terminal."""
    executor = ChosenExecutor.of_folder(root)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_WITHHELD_PREFIXES)}
    arguments = ["--data", str(root), "--idle-timeout", str(_IDLE_TIMEOUT_S), "--executor", executor.name]
    arguments += [f"--executor-option={name}={value}" for name, value in executor.options.items()]
    return start_detached(
        "pai_sdk._service.__main__", arguments, log=_log_file(root), cwd=root, environment=environment
    )


@contextmanager
def _start_lock(root: Path, deadline: float) -> Iterator[None]:
    """Lets one of several processes start the service; the others wait."""
    # Polled, because a lock that waits has no time limit.
    while True:
        with locked(root / "start.lock", waits=False) as has_lock:
            if has_lock:
                yield
                return
        if time.monotonic() > deadline:
            raise ServiceStartError(f"another process is still starting the service on {root}.{_log_tail(root)}")
        time.sleep(_POLL_INTERVAL_S)


def _responds(info: ServiceInfo, timeout_s: float) -> bool:
    """Returns whether the recorded service is reachable and accepts its key."""
    address = urlsplit(info.endpoint)
    path = "/api/v1/defaultWorkspaces"
    headers = {
        "host": address.netloc,
        "x-acs-action": "GetDefaultWorkspace",
        "x-acs-version": "2021-02-04",
        "x-acs-date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "x-acs-signature-nonce": uuid.uuid4().hex,
        "x-acs-content-sha256": payload_hash(b""),
    }
    signature = acs3_signature(
        info.access_key_secret,
        method="GET",
        path=path,
        query={},
        headers=headers,
        signed_headers=list(headers),
        payload_hash=headers["x-acs-content-sha256"],
    )
    names = ";".join(sorted(headers))
    headers["authorization"] = (
        f"{ACS3} Credential={info.access_key_id},SignedHeaders={names},Signature={signature}"
    )
    try:
        connection = _connection_to(info, timeout_s)
    except OSError:
        # Its certificate file is unreadable.
        return False
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _connection_to(info: ServiceInfo, timeout_s: float) -> http.client.HTTPConnection:
    """Returns a connection to a service on this machine; with TLS, only its own certificate is trusted."""
    address = urlsplit(info.endpoint)
    if address.scheme != "https":
        return http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate itself is the trust anchor, also if it is not self-signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cafile=info.certificate)
    return http.client.HTTPSConnection(address.hostname or "", address.port, timeout=timeout_s, context=context)


def _log_file(root: Path) -> Path:
    return root / "service.log"


def _log_tail(root: Path) -> str:
    try:
        lines = _log_file(root).read_text(encoding="utf-8", errors="replace").splitlines()[-_NUM_LOG_LINES:]
    except OSError:
        return ""
    return "".join(f"\n  | {line}" for line in [f"the end of {_log_file(root)}:", *lines])
