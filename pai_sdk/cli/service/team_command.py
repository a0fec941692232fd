"""`pai-sdk service compose`: writes a folder from which Docker Compose starts a service."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from pai_sdk._core.files import replace_file
from pai_sdk._core.paths import expanded
from pai_sdk._core.version import __version__
from pai_sdk.cli.options import host_names
from pai_sdk.cli.service.wheel_command import WHEEL_NAME, packed_wheel

_TEMPLATES = Path(__file__).with_name("team")
_UNPRIVILEGED = 10001  # the user of the service if root runs the command


def _checked_host(name: str) -> str:
    host_names([name])
    return name


def compose(
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet, or is empty.")],
    host: Annotated[
        str, typer.Option(callback=_checked_host, help="The name by which users reach this machine.")
    ] = "localhost",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of this machine for the service.")] = 8765,
) -> None:
    """Write the files with which Docker Compose starts this release of the service, with PostgreSQL.

    The image installs the wheel of this release, which is written beside them.
    The password of the database is made here. Only you, and the user as which the service runs, can read it.

    Example: pai-sdk service compose team --host train.example.com
    """
    root = expanded(folder).absolute()
    user_id = _user_id() or _UNPRIVILEGED
    release = packed_wheel()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise typer.BadParameter(f"It is not empty, so nothing was written: {root}", param_hint="FOLDER")
        for template in sorted(_TEMPLATES.iterdir()):
            shutil.copyfile(template, root / template.name)
        (root / WHEEL_NAME).write_bytes(release)
        settings = {
            "PAI_SDK_VERSION": __version__,
            "PAI_SERVICE_HOST": host,
            "PAI_SERVICE_PORT": port,
            "PAI_SERVICE_USER_ID": user_id,
        }
        (root / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        _write_secrets(root / "secrets", user_id)
    except OSError as error:
        raise typer.BadParameter(
            f"It cannot be written ({error.strerror or error}): {root}", param_hint="FOLDER"
        ) from error
    typer.echo(f"wrote {root}; to start the service: docker compose up --detach, in this folder")


def _write_secrets(folder: Path, user_id: int) -> None:
    """Writes the password, and the URL with it, to files that the service can read in its container."""
    password = secrets.token_hex(24)
    folder.mkdir(mode=0o700)
    contents = {
        "database-password": password,
        "database-url": f"postgresql+psycopg://pai:{password}@database/pai",
    }
    for name, content in contents.items():
        replace_file(folder / name, f"{content}\n", mode=0o600)
        if sys.platform != "win32" and os.getuid() == 0:
            os.chown(folder / name, user_id, -1)


def _user_id() -> int:
    if sys.platform == "win32":
        return 0
    return os.getuid()
