"""What the files of `pai-sdk service compose` are run with here, where no image registry can be reached.

`docker compose` is Debian's docker-compose. The two images that the files name are made of the base image of the
tests: one with Python and wheels of what pai_sdk requires, and one with Debian's PostgreSQL, which starts as
the official image does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

from tests.docker.engine import CACHE, Engine
from tests.docker.release import Container, empty_container
from tests.support.packages import install_packages

__all__ = ["NEXT_VERSION", "have_compose", "load_images"]

ROOT = Path(__file__).resolve().parents[2]
NEXT_VERSION = "0.2.0"

_PIP = "[global]\nno-index = true\nfind-links = /wheels\n"
# As the official image does it: a first start as root takes over the volume and reads the file with the password.
_POSTGRES = """\
#!/bin/sh
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
export PGDATA=/var/lib/postgresql/data
if [ "$(id -u)" = 0 ]; then
    POSTGRES_PASSWORD=$(cat "$POSTGRES_PASSWORD_FILE")
    export POSTGRES_PASSWORD
    mkdir -p $PGDATA
    chown postgres $PGDATA /var/run/postgresql
    chmod 700 $PGDATA
    exec setpriv --reuid postgres --regid postgres --init-groups "$0"
fi
if [ ! -s $PGDATA/PG_VERSION ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username "$POSTGRES_USER" --pwfile /tmp/password --auth-host scram-sha-256 --auth-local trust \\
        --encoding UTF8 --locale C.UTF-8
    rm /tmp/password
    echo "host all all all scram-sha-256" >> $PGDATA/pg_hba.conf
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single postgres
fi
exec postgres -c "listen_addresses=*"
"""
# A plugin of the client of Docker, with what only Compose 2 has: `up --wait`.
_PLUGIN = """\
#!/bin/sh
if [ "$1" = docker-cli-plugin-metadata ]; then
    echo '{"SchemaVersion": "0.1.0", "Vendor": "Debian", "Version": "1.29.2"}'
    exit
fi
shift
waits=
for word; do
    shift
    if [ "$word" = --wait ]; then waits=1; else set -- "$@" "$word"; fi
done
docker-compose "$@" || exit
[ "$waits" ] || exit 0
for id in $(docker-compose ps -q); do
    while state=$(docker inspect -f '{{.State.Health.Status}}' "$id") && [ "$state" != healthy ]; do
        if [ "$state" = unhealthy ]; then echo "container $id is unhealthy" >&2; exit 1; fi
        sleep 0.5
    done
done
"""
_INSTALL_POSTGRES = (
    "apt-get -qq update && apt-get -qq install -y --no-install-recommends postgresql >/dev/null"
    " && rm -rf /var/lib/postgresql/* /var/cache/apt /var/lib/apt/lists && chmod +x /srv/entrypoint"
)


def have_compose(folder: Path) -> None:
    """Make `docker compose` work for a client of Docker whose configuration is in that folder (DOCKER_CONFIG)."""
    plugin = folder / "cli-plugins" / "docker-compose"
    plugin.parent.mkdir(parents=True)
    install_packages("docker-compose", programs=("docker-compose",))
    plugin.write_text(_PLUGIN)
    plugin.chmod(0o755)


def load_images(engine: Engine, folder: Path) -> Path:
    """Have the two images that the files name, with what pai_sdk requires; gives the wheel of a next release."""
    wheel = _wheel(folder, None)

    def download(python: Container) -> None:
        python.write(_PIP, "/wheels/pip.conf")
        python.put(wheel, "/srv")
        python.type(f"pip wheel --quiet --wheel-dir /wheels '/srv/{wheel.name}[service,postgres]'")
        python.type("rm /srv/*.whl /wheels/pai_training_sdk-*.whl")

    def install(postgres: Container) -> None:
        postgres.write(_POSTGRES, "/srv/entrypoint")
        postgres.type(_INSTALL_POSTGRES)

    needs = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    _load(engine, "pai-sdk-test:wheels", _PIP + needs, download, "ENV PIP_CONFIG_FILE=/wheels/pip.conf")
    _load(engine, "postgres:17", _POSTGRES + _INSTALL_POSTGRES, install, 'ENTRYPOINT ["/srv/entrypoint"]')
    context = folder / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM pai-sdk-test:wheels\n")
    with engine.client() as client:
        client.images.build(path=str(context), tag="python:3.12-slim")
    return _wheel(folder, NEXT_VERSION)


def _load(engine: Engine, name: str, made_of: str, make: Callable[[Container], None], change: str) -> None:
    """Have an image: the files of an empty container in which something was done, which are kept as an archive."""
    archive = CACHE / f"{name.replace(':', '-')}-{hashlib.sha256(made_of.encode()).hexdigest()[:8]}.tar"
    docker = ["docker", "--host", engine.socket]
    if not archive.exists():
        with empty_container(engine) as container, NamedTemporaryFile(dir=CACHE) as partial:
            make(container)
            subprocess.run([*docker, "export", container.container.id], stdout=partial, check=True)
            os.link(partial.name, archive)
    command = [*docker, "import", "--change", change, str(archive), name]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def _wheel(folder: Path, version: str | None) -> Path:
    """A wheel of this tree, as it is or with another version."""
    source = ROOT
    if version is not None:
        source = folder / "source"
        source.mkdir(parents=True)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        shutil.copytree(ROOT / "pai_sdk", source / "pai_sdk", ignore=shutil.ignore_patterns("node_modules"))
        (source / "pai_sdk/_core/version.py").write_text(f'"""The version."""\n\n__version__ = "{version}"\n')
    built = folder / (version or "now")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next(built.glob("*.whl"))
