"""`pai-sdk pack`: lists the files of a code folder that a job would upload, without sending any."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pai_sdk.storage.tree import size_text

if TYPE_CHECKING:
    from pai_sdk.storage.tree import FileTree

_MOST_ROWS = 30


def pack(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The source_dir: a folder, or one file.")] = ".",
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Every line, however many there are.")] = False,
    allow_secrets: Annotated[
        bool, typer.Option("--allow-secrets", help="Take files along that are keys.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")] = False,
) -> None:
    """Show which files of a code folder go along with a job, which stay behind, and why.

    Example: pai-sdk pack src --all
    """
    from pai_sdk.code.package import package_code

    left: list[tuple[str, str]] = []
    tree = package_code(
        folder, allow_secrets=allow_secrets, left_behind=lambda path, reason: left.append((path, reason))
    )
    left.sort()
    if as_json:
        typer.echo(json.dumps(_facts(tree, left), ensure_ascii=False))
        return
    _show_files(tree, len(tree.entries) if show_all else _MOST_ROWS)
    _show_left(left, len(left) if show_all else _MOST_ROWS)


def _facts(tree: FileTree, left: Sequence[tuple[str, str]]) -> dict[str, object]:
    return {
        "root": str(tree.root),
        "digest": tree.digest,
        "size_bytes": tree.size_bytes,
        "files": [
            {"path": e.path, "size_bytes": e.size_bytes, "executable": e.executable, "sha256": e.sha256}
            for e in tree.entries
        ],
        "left_behind": [{"path": path, "reason": reason} for path, reason in left],
    }


def _show_files(tree: FileTree, most: int) -> None:
    shown = heapq.nlargest(most, tree.entries, key=lambda entry: entry.size_bytes)
    for entry in sorted(shown, key=lambda entry: entry.path):
        typer.echo(f"{size_text(entry.size_bytes):>10}  {_shown(entry.path)}")
    if len(shown) < len(tree.entries):
        typer.echo(f"{'…':>10}  and {len(tree.entries) - len(shown)} smaller ones; --all shows them")
    typer.echo(f"\n{tree.summary()}, digest {tree.digest[:32]}")


def _show_left(left: Sequence[tuple[str, str]], most: int) -> None:
    if not left:
        return
    typer.echo("\nleft behind:")
    width = max(len(_shown(path)) for path, _ in left[:most])
    for path, reason in left[:most]:
        typer.echo(f"  {_shown(path):{min(width, 50)}}  {_shown(reason)}")
    if len(left) > most:
        typer.echo(f"  … and {len(left) - most} more; --all shows them")


def _shown(text: str) -> str:
    """The text on one line, whatever a file is called."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
