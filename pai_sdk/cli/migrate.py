"""`pai-sdk migrate`: rewrites what was written for alipai, and shows estimators for DLC jobs."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pai_sdk._core.files import replace_file
from pai_sdk._core.terminal_text import visible_text
from pai_sdk.alipai.migration import (
    migrate_notebook,
    migrate_packages,
    migrate_script,
    migrate_source,
    read_source,
)
from pai_sdk.cli import exit_codes
from pai_sdk.cli.tables import print_error, print_json
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk.alipai.migration import Migrated

_SCRIPTS = (".sh", ".bash", ".zsh")
_PACKAGES = re.compile(
    r"(requirements|constraints).*\.(txt|in)|pyproject\.toml|setup\.cfg|Pipfile|(environment|conda).*\.ya?ml"
    r"|(.*\.)?Dockerfile.*"
)
"""Files that name packages; other lists are read if their own path is given."""
_LISTS = (".txt", ".in", ".toml", ".cfg", ".yml", ".yaml")
_SHEBANG = re.compile(rb"#!.*\b(ba|da|k|z)?sh\b")
_SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules", "site-packages", "venv"))


def migrate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH", help="Programs, notebooks, shell scripts, lists of packages, or folders with them."
        ),
    ],
    write: Annotated[
        bool, typer.Option("--write", "-w", help="Change the files; without it, only show the changes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per file, for scripts.")] = False,
) -> None:
    """Rewrite programs and notebooks that use alipai: `pai` becomes `pai_sdk`. Shows the changes and what remains.

    For DLC jobs, of `dlc submit` or the official client, it shows an Estimator that does the same. Those files are
    not changed: `pai-sdk dlc` runs scripts as they are.

    Imports and uses of the package are changed; strings and comments are not. What needs a manual change is listed
    with its replacement: names that pai_sdk lacks, names in strings, calls that mean something else, lines that
    install alipai. The exit code is 1 if a file cannot be read.

    Example: pai-sdk migrate train.py notebooks/ --write
    """
    missing = [Problem("PATH", f"{path} does not exist") for path in paths if not path.exists()]
    if missing:
        raise InvalidInputError(missing)
    changed = num_findings = num_jobs = failed = 0
    for path in _files(paths):
        try:
            migrated = _migrate(path, write=write)
        except (OSError, RecursionError, SyntaxError, ValueError) as error:
            failed += 1
            reason = _reason(error)
            if as_json:
                print_json({"path": str(path), "error": reason})
            else:
                print_error(f"{visible_text(str(path))}: {visible_text(reason)}")
            continue
        changed += bool(migrated.changes)
        num_findings += len(migrated.findings)
        num_jobs += len(migrated.suggestions)
        if as_json:
            findings = [asdict(finding) for finding in migrated.findings]
            jobs = [asdict(suggestion) for suggestion in migrated.suggestions]
            print_json({"path": str(path), "changed": bool(migrated.changes), "findings": findings, "jobs": jobs})
        else:
            _show(path, migrated)
    if not as_json:
        if num_jobs:
            typer.echo(f"{num_jobs} DLC job{'' if num_jobs == 1 else 's'} shown as an estimator: copy the code")
        outcome = "changed" if write else "to change; --write changes them"
        typer.echo(f"{changed} file{'' if changed == 1 else 's'} {outcome}")
        if num_findings:
            typer.echo(
                f"{num_findings} place{' needs' if num_findings == 1 else 's need'} a manual change: see above"
            )
    raise typer.Exit(exit_codes.ERROR if failed else exit_codes.SUCCEEDED)


def _reason(error: Exception) -> str:
    if isinstance(error, SyntaxError):  # its text would end in "(<unknown>, line 1)"
        return f"not valid Python: line {error.lineno}: {error.msg}" if error.lineno else str(error)
    return str(error)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yields the files of the paths, each once, without those in hidden folders and environments."""
    resolved: set[Path] = set()
    for path in _walk(paths):
        real_path = path.resolve()
        if real_path not in resolved:
            resolved.add(real_path)
            yield path


def _walk(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, below, names in os.walk(path):
            below[:] = sorted(
                name
                for name in below
                if not name.startswith(".")
                and name not in _SKIPPED_FOLDERS
                and not Path(folder, name, "pyvenv.cfg").exists()
            )
            yield from (
                Path(folder, name)
                for name in sorted(names)
                if name.endswith((".py", ".ipynb", *_SCRIPTS)) or _PACKAGES.fullmatch(name)
            )


def _migrate(path: Path, *, write: bool) -> Migrated:
    if path.suffix == ".ipynb":
        text, encoding = path.read_bytes().decode("utf-8"), "utf-8"
        migrated = migrate_notebook(text)
    elif path.suffix in _LISTS or _PACKAGES.fullmatch(path.name):
        return migrate_packages(path.read_bytes().decode("utf-8"))
    elif _is_script(path):
        return migrate_script(path.read_bytes().decode("utf-8"), path.parent)
    else:
        text, encoding = read_source(path)
        migrated = migrate_source(text)
    if write and migrated.text != text:
        target = path.resolve()  # a link stays a link
        replace_file(target, migrated.text.encode(encoding), mode=target.stat().st_mode & 0o777)
    return migrated


def _is_script(path: Path) -> bool:
    if path.suffix in _SCRIPTS or path.suffix == ".py":
        return path.suffix != ".py"
    with path.open("rb") as file:
        return _SHEBANG.match(file.readline(200)) is not None


def _show(path: Path, migrated: Migrated) -> None:
    for label, old, new in migrated.changes:
        name = f"{path} ({label})" if label else str(path)
        for line in difflib.unified_diff(old, new, name, name):
            colour = {"+": "green", "-": "red"}.get(line[0]) if line[:3] not in ("+++", "---") else None
            typer.secho(visible_text(line.rstrip("\r\n")), fg=colour)
    for finding in migrated.findings:
        cell = f"cell {finding.cell}, " if finding.cell else ""
        location = f"{path}, {cell}line {finding.line}"
        typer.echo(f"{visible_text(location)}: {visible_text(finding.what)}: {visible_text(finding.instead)}")
    for suggestion in migrated.suggestions:
        cell = f"cell {suggestion.cell}, " if suggestion.cell else ""
        typer.echo(visible_text(f"{path}, {cell}line {suggestion.line}: {suggestion.what}, as an estimator:"))
        for line in suggestion.code.splitlines():
            typer.secho(f"    {visible_text(line)}" if line else "", fg="green")
        for note in suggestion.notes:
            typer.echo(f"  - {visible_text(note)}")
