"""`pai-sdk wheel`: packs a wheel of this package.

Nodes and images install the package from this file, because it is in no index. The wheel is packed from the
installed files, so neither a clone nor a build tool nor a network is needed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Annotated

import typer

from pai_sdk._core.extras import DISTRIBUTION, install_command, installed_distribution
from pai_sdk._core.files import replace_file
from pai_sdk._core.paths import expanded
from pai_sdk._core.version import __version__
from pai_sdk.errors import PaiError

WHEEL_NAME = f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"
"""The name of the file."""

_PACKAGE = Path(__file__).resolve().parents[2]
_SOURCES_OF_PAGE = _PACKAGE / "_service" / "web" / "src"  # what is built from them is in the wheel
_WHEEL = "Wheel-Version: 1.0\nGenerator: pai-sdk wheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest time of zip, for a reproducible file


def wheel(
    folder: Annotated[
        Path, typer.Argument(help="The folder for the file; created if it does not exist.")
    ] = Path(),
) -> None:
    """Write the wheel of this release of pai_sdk, for the nodes and images that need it, and print its path.

    Example: pai-sdk wheel /shared/me
    """
    root = expanded(folder)
    content = packed_wheel()
    try:
        root.mkdir(parents=True, exist_ok=True)
        replace_file(root / WHEEL_NAME, content, mode=0o666)
    except OSError as error:
        raise typer.BadParameter(
            f"It cannot be written ({error.strerror or error}): {root}", param_hint="FOLDER"
        ) from error
    typer.echo(root / WHEEL_NAME)


def packed_wheel() -> bytes:
    """Returns the wheel of this release; raises PaiError unless pip has installed this release."""
    distribution = installed_distribution()
    if distribution is None:
        raise PaiError(
            f"the wheel needs what pip records about the package; install it first: {install_command()}"
        )
    if distribution.version != __version__:
        raise PaiError(
            f"this is release {__version__}, but {distribution.version} was installed; run: {install_command()}"
        )
    about = f"{DISTRIBUTION.replace('-', '_')}-{__version__}.dist-info"
    members = [*_package_files(), *_metadata_files(distribution, about)]
    rows = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content, _ in members]
    record = "".join([*rows, f"{about}/RECORD,,\n"]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in [*members, (f"{about}/RECORD", record, 0o644)]:
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _package_files() -> Iterator[tuple[str, bytes, int]]:
    """Yields name, content and mode of each file of the package, without what Python and editors leave there."""
    for path in sorted(_PACKAGE.rglob("*")):
        inner = path.relative_to(_PACKAGE)
        is_excluded = any(part == "__pycache__" or part.startswith(".") for part in inner.parent.parts)
        if is_excluded or path.is_relative_to(_SOURCES_OF_PAGE) or not path.is_file():
            continue
        executable = path.stat().st_mode & 0o111
        yield f"{_PACKAGE.name}/{inner.as_posix()}", path.read_bytes(), 0o755 if executable else 0o644


def _metadata_files(distribution: Distribution, about: str) -> Iterator[tuple[str, bytes, int]]:
    for name in ("METADATA", "entry_points.txt"):
        yield f"{about}/{name}", (distribution.read_text(name) or "").encode(), 0o644
    for path in distribution.files or ():
        if path.parent.name == "licenses":
            yield f"{about}/licenses/{path.name}", Path(str(distribution.locate_file(path))).read_bytes(), 0o644
    yield f"{about}/WHEEL", _WHEEL.encode(), 0o644


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
