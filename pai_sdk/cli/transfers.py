"""`pai-sdk cp`, `ls`, `sync`, `rm` and `pack`: local files and folders, and those at any URI."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk._core.paths import expanded
from pai_sdk._data.storage.content_hash import hexadecimal
from pai_sdk._data.storage.store import open_store
from pai_sdk._data.storage.stores.local import path_of_file_uri
from pai_sdk._data.storage.tree import size_text, with_sha256
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk.cli.options import Json
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, Problem

if TYPE_CHECKING:
    from pai_sdk._data.storage.store import Store
    from pai_sdk._data.storage.stored_file import StoredFile
    from pai_sdk._data.storage.sync.dir_sync import SyncReport
    from pai_sdk._data.storage.tree import FileTree

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="A folder with all its subfolders.")]
_COPY_REMOTE = "pai_sdk.cli.enter.files:copy_remote"
_LOCATION_HELP = "A local path, or a URI: oss://, s3://, hdfs://, webhdfs://, memory:// or another of fsspec."


def cp(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A local path, JOB[:RANK]:/path, or a URI: oss://, s3://, hdfs://, webhdfs://, memory:// or"
            " another of fsspec.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="A local path, JOB[:RANK]:/path, or a URI; a folder if it ends with /."
        ),
    ],
    recursive: Recursive = False,
    dry_run: DryRun = False,
) -> None:
    """Copy a file, or with --recursive the content of a folder. JOB:/path is a file or folder of a running job.

    JOB:RANK:/path is that of one instance. A folder of a job needs no --recursive; an existing TARGET gets it
    inside.

    Example: pai-sdk cp -r oss://models/digits/ ./digits
    """
    # For weight: other copies do without tunnels.
    if ":" in source + target and resolve_name(_COPY_REMOTE)(source, target, dry_run=dry_run):
        return
    source_entry = _find(source)
    if source_entry.file is None:
        _need_recursive(source_entry, recursive, "cp")
        _show(_move(source, target, dry_run=dry_run, remember=False), "copied", target, dry_run=dry_run)
        return
    location = _location_of(target)
    if target.endswith("/") or (isinstance(location, Path) and location.is_dir()):
        store, name = open_store(location), source_entry.name
    else:
        store, name = _parent_of(location)
    if not dry_run:
        from pai_sdk._data.storage.sync.dir_sync import move_file

        move_file(source_entry.store, source_entry.file, store, name, progress=True)
    size = "" if dry_run else f" ({size_text(source_entry.file.size_bytes)})"
    _print_line(f"{'would copy' if dry_run else 'copied'} {source}{size} to {store.uri}{name}")


def ls(
    location: Annotated[str, typer.Argument(metavar="PLACE", help=_LOCATION_HELP)] = ".",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Include the files of subfolders.")] = False,
    as_json: Json = False,
) -> None:
    """List a folder, or show size, time and ETag of a file.

    Example: pai-sdk ls -r oss://models/digits/
    """
    entry = _find(location)
    if entry.file is not None:
        rows: Iterator[tuple[str, StoredFile | None]] = iter([(entry.name, entry.file)])
    else:
        prefix_length = len(entry.prefix)
        files = ((file.path[prefix_length:], file) for file in entry.store.list(entry.prefix))
        rows = iter(files) if recursive else _directly_in(files)
    for path, file in rows:
        _print_line(_json_row(path, file) if as_json else _row(path, file))


def sync(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=f"A folder. {_LOCATION_HELP}")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The folder to copy into: a local path or a URI.")
    ],
    delete: Annotated[bool, typer.Option("--delete", help="Delete files that the source does not have.")] = False,
    checksum: Annotated[
        bool,
        typer.Option(
            "--checksum",
            help="Compare the content of files that no earlier sync copied; equal files are not copied.",
        ),
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Copy the new and changed files of a folder into another folder.

    Example: pai-sdk sync data oss://models/datasets/points --delete --dry-run
    """
    source_entry = _find(source)
    if source_entry.file is not None:
        raise InvalidInputError([Problem("SOURCE", f"{source} is a file", "copy it with: pai-sdk cp")])
    report = _move(source, target, dry_run=dry_run, delete=delete, checksum=checksum, verify=True)
    _show(report, "moved", target, dry_run=dry_run)


def rm(
    location: Annotated[str, typer.Argument(metavar="PLACE", help=_LOCATION_HELP)],
    recursive: Recursive = False,
    dry_run: DryRun = False,
) -> None:
    """Delete a file, or with --recursive a folder with its content. Links are not followed.

    Example: pai-sdk rm -r oss://models/digits/ --dry-run
    """
    try:
        entry = _find(location, follow=False)
    except ObjectNotFoundError as error:
        if uri_scheme(location) is not None or "/" in location:
            raise
        raise ObjectNotFoundError(f"{error}; to delete a job: pai-sdk delete {location}", uri=location) from error
    if entry.file is None:
        _need_recursive(entry, recursive, "rm")
        paths = [file.path for file in entry.store.list(entry.prefix, folders=True)]
    else:
        paths = [entry.name]
    count = sum(not path.endswith("/") for path in paths)
    if not dry_run:
        entry.store.delete(paths)
    _print_line(f"{'would delete' if dry_run else 'deleted'} {_objects(count)} at {location}")


@dataclass(frozen=True)
class _Entry:
    """A file or a folder."""

    location: str  # the path or URI of the user
    store: Store  # of its parent folder, or of a complete bucket
    name: str  # in the store; empty for a complete bucket
    file: StoredFile | None = None  # None for a folder

    @property
    def prefix(self) -> str:
        """Returns the common prefix of the paths in the folder."""
        return f"{self.name}/" if self.name else ""


def _find(text: str, *, follow: bool = True) -> _Entry:
    location = _location_of(text)
    store, name = _parent_of(location)
    store = store if follow else store.without_links()
    if not follow and isinstance(location, Path) and location.is_symlink():
        return _Entry(text, store, name, next(iter(store.list(name))))
    if name and not text.endswith("/"):
        try:
            return _Entry(text, store, name, store.head(name))
        except ObjectNotFoundError:
            pass
    entry = _Entry(text, store, name)
    if not (isinstance(location, Path) and location.is_dir()) and not any(True for _ in store.list(entry.prefix)):
        raise ObjectNotFoundError(f"{text}: no such file or folder", uri=text)
    return entry


def _location_of(text: str) -> Path | str:
    """Parses a local path or a URI."""
    if not text:
        raise InvalidInputError([Problem("PLACE", "is empty", "give a path or a URI; '.' is the current folder")])
    if text.startswith("file:"):
        return path_of_file_uri(text)
    return expanded(text).absolute() if uri_scheme(text) is None else text


def _parent_of(location: Path | str) -> tuple[Store, str]:
    """Opens the store of the parent folder; returns it and the name in it, which is empty for a bucket."""
    if isinstance(location, Path):
        location = location.resolve() if ".." in location.parts else location
        return open_store(location.parent), location.name
    scheme, _, path = location.partition("://")
    folder, slash, name = path.rstrip("/").rpartition("/")
    return (open_store(f"{scheme}://{folder}/"), name) if slash else (open_store(location), "")


def _need_recursive(entry: _Entry, recursive: bool, command: str) -> None:
    if recursive:
        return
    count = sum(1 for _ in entry.store.list(entry.prefix))
    raise InvalidInputError(
        [
            Problem(
                entry.location,
                f"is a folder with {_objects(count)}",
                f"pai-sdk {command} --recursive takes all of it",
            )
        ]
    )


def _move(source: str, target: str, *, dry_run: bool, **options: Any) -> SyncReport:
    from pai_sdk._data.storage.sync.dir_sync import DirSync

    def note(action: str, path: str) -> None:
        _print_line(f"would {action} {path}")

    if dry_run:
        options["note"] = note
    stores = open_store(_location_of(source)), open_store(_location_of(target))
    return DirSync(*stores, dry_run=dry_run, progress=True, title="copying", **options).run()


def _directly_in(files: Iterator[tuple[str, StoredFile]]) -> Iterator[tuple[str, StoredFile | None]]:
    last = ""
    for path, file in files:
        child, slash, _ = path.partition("/")
        if not slash:
            yield path, file
        elif child != last:
            last = child
            yield f"{child}/", None


def _row(path: str, file: StoredFile | None) -> str:
    size = "" if file is None else size_text(file.size_bytes)
    date = ""
    if file is not None and file.modified_ns is not None:
        date = datetime.fromtimestamp(file.modified_ns // 10**9, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    return f"{size:>10}  {date:19}  {path}"


def _json_row(path: str, file: StoredFile | None) -> str:
    row: dict[str, Any] = {"path": path}
    if file is not None:
        row.update(size_bytes=file.size_bytes, modified_ns=file.modified_ns, etag=file.etag)
    return json.dumps(row, ensure_ascii=False)


def _show(report: SyncReport, done: str, target: str, *, dry_run: bool) -> None:
    unchanged = f", {report.unchanged} unchanged" if report.unchanged else ""
    deleted = f", {report.deleted} deleted" if report.deleted else ""
    grown = f", {len(report.grown)} still being written" if report.grown else ""
    head = f"would have {done}" if dry_run else done
    moved = f"{_objects(report.moved)} ({size_text(report.moved_bytes)})"
    _print_line(f"{head} {moved} to {target}{unchanged}{deleted}{grown}")


def _objects(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _print_line(text: str) -> None:
    """Prints one line, with escapes for characters that cannot be printed."""
    typer.echo(_printable(text))


_MAX_ROWS = 30


def pack(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The source_dir: a folder, or one file.")] = ".",
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Show all files.")] = False,
    allow_secrets: Annotated[
        bool, typer.Option("--allow-secrets", help="Include files that look like keys or passwords.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")] = False,
) -> None:
    """Show which files of a code folder are uploaded for a job, which are left out, and why.

    Example: pai-sdk pack src --all
    """
    from pai_sdk._client.code.package import package_code

    excluded: list[tuple[str, str]] = []
    tree = package_code(
        folder, allow_secrets=allow_secrets, left_behind=lambda path, reason: excluded.append((path, reason))
    )
    excluded.sort()
    if as_json:
        typer.echo(json.dumps(_json_of(tree, excluded), ensure_ascii=False))
        return
    _show_files(tree, len(tree.entries) if show_all else _MAX_ROWS)
    _show_excluded(excluded, len(excluded) if show_all else _MAX_ROWS)


def _json_of(tree: FileTree, excluded: Sequence[tuple[str, str]]) -> dict[str, object]:
    return {
        "root": str(tree.root),
        "digest": tree.digest,
        "size_bytes": tree.size_bytes,
        "files": [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "executable": file.executable,
                "sha256": hexadecimal(file.digest),
            }
            for file in with_sha256(tree).entries
        ],
        "left_behind": [{"path": path, "reason": reason} for path, reason in excluded],
    }


def _show_files(tree: FileTree, limit: int) -> None:
    largest = heapq.nlargest(limit, tree.entries, key=lambda entry: entry.size_bytes)
    for entry in sorted(largest, key=lambda entry: entry.path):
        typer.echo(f"{size_text(entry.size_bytes):>10}  {_printable(entry.path)}")
    if len(largest) < len(tree.entries):
        typer.echo(f"{'…':>10}  and {len(tree.entries) - len(largest)} smaller ones; --all shows them")
    typer.echo(f"\n{tree.summary()}, digest {tree.digest[:32]}")


def _show_excluded(excluded: Sequence[tuple[str, str]], limit: int) -> None:
    if not excluded:
        return
    typer.echo("\nleft behind:")
    width = max(len(_printable(path)) for path, _ in excluded[:limit])
    for path, reason in excluded[:limit]:
        typer.echo(f"  {_printable(path):{min(width, 50)}}  {_printable(reason)}")
    if len(excluded) > limit:
        typer.echo(f"  … and {len(excluded) - limit} more; --all shows them")


def _printable(text: str) -> str:
    """Escapes the characters of a name that cannot be printed."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
