"""The tests of the service on PostgreSQL: `python -m tests.service.postgres [options of pytest]`.

A cluster of its own is made in a temporary folder, on a Unix socket and without fsync, and is taken down at the
end. Debian's PostgreSQL is used when it is there, and installed when it is not and we may (as root, by apt).
Each data folder of a test gets a schema of its own, and the same again when a service is started on it once more.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.packages import install_packages

# Not PAI_…: those are taken out of the environment of every test.
URL_VARIABLE = "TEST_POSTGRES_URL"
_TESTS = (
    "tests/service",
    # These know no database, or SQLite only.
    "--ignore=tests/service/objects",
    "--ignore=tests/service/tables",
    "--ignore=tests/service/runs/test_run_logs.py",
    "--ignore=tests/service/runs/test_run_routes.py",
    "--ignore=tests/service/runs/test_ui.py",
)
_USER = "pai"
_LONGEST_S = 300  # that a server may take to start or end, and others to install something else first


def is_used() -> bool:
    """Whether the tests run on PostgreSQL."""
    return bool(os.environ.get(URL_VARIABLE))


def url_for(folder: Path) -> str | None:
    """The database for the data in that folder; None when the tests run on SQLite."""
    server = os.environ.get(URL_VARIABLE)
    if not server:
        return None
    import psycopg
    from sqlalchemy import make_url

    name = "t" + hashlib.sha256(str(folder).encode()).hexdigest()[:24]
    url = make_url(server)
    with psycopg.connect(url.set(drivername="postgresql").render_as_string(hide_password=False)) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
    return url.update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)


@contextmanager
def cluster() -> Iterator[str]:
    """A server of our own; gives its URL."""
    programs = find_programs()
    owner = _unprivileged()
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = folder / "data"
        run = {"check": True, "cwd": folder, "stdout": subprocess.DEVNULL, **_as(owner)}
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"],
            **run,
        )
        options = f"-k {folder} -c listen_addresses= -c fsync=off -c full_page_writes=off"
        control = [programs / "pg_ctl", "-D", data, "-w", "-t", str(_LONGEST_S), "-l", folder / "log"]
        try:
            subprocess.run([*control, "-o", f"{options} -c max_connections=300", "start"], **run)
            yield f"postgresql+psycopg://{_USER}@/postgres?host={folder}"
        finally:
            if (data / "postmaster.pid").exists():
                subprocess.run([*control, "-m", "immediate", "stop"], **run)


def restart(url: str) -> None:
    """End a server of `cluster` as a crash does, if it runs, and start it again."""
    _control(url, "-m", "immediate", "restart")


def stop(url: str) -> None:
    """End a server of `cluster` as a crash does."""
    _control(url, "-m", "immediate", "stop")


def _control(url: str, *command: str) -> None:
    from sqlalchemy import make_url

    folder = Path(str(make_url(url).query["host"]))
    options = shlex.join(["-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"])
    program = [
        find_programs() / "pg_ctl",
        "-D",
        folder / "data",
        "-w",
        "-t",
        str(_LONGEST_S),
        "-l",
        folder / "log",
    ]
    subprocess.run(
        [*program, "-o", options, *command],
        check=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        **_as(_unprivileged()),
    )


def find_programs() -> Path:
    """The folder of initdb and pg_ctl."""
    found = _installed()
    if found is None and os.getuid() == 0 and shutil.which("apt-get"):
        install_packages("postgresql")
        found = _installed()
    if found is None:
        raise SystemExit("PostgreSQL is not installed: apt-get install postgresql")
    return found


def _installed() -> Path | None:
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    return newest.parent if newest else None


def _unprivileged() -> pwd.struct_passwd | None:
    """The account that the server runs as: it refuses to run as root."""
    if os.getuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def _as(owner: pwd.struct_passwd | None) -> dict[str, object]:
    return {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def main(arguments: list[str]) -> int:
    # A signal that ends this process, from `timeout` for one, ends the cluster with it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    paths = [] if any(Path(given.partition("::")[0]).exists() for given in arguments) else _TESTS
    with cluster() as url:
        command = [sys.executable, "-m", "pytest", *paths, *arguments]
        return subprocess.run(command, env={**os.environ, URL_VARIABLE: url}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
