"""`pai-sdk config`: the settings in force and where each comes from; `config set`, `unset` and `path`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pai_sdk.base.hints import name_hint
from pai_sdk.cli.tables import Column, print_facts, print_json, print_table
from pai_sdk.config.file import config_path_of, write_config
from pai_sdk.config.rules import CHECKS
from pai_sdk.config.settings import Settings, load_settings

__all__ = ["app", "masked"]

app = typer.Typer(help="The settings: show them with their sources, set and unset those of the config file.")

_KEYS = {  # the parts of a key in the environment; whether one may be seen
    "access_key_id": ("ALIBABA_CLOUD_ACCESS_KEY_ID", True),
    "access_key_secret": ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", False),
    "security_token": ("ALIBABA_CLOUD_SECURITY_TOKEN", False),
}
_SHOWN_OF_AN_ID = 4

Name = Annotated[
    str, typer.Argument(metavar="KEY", help="region_id, workspace_id, …", autocompletion=lambda: list(CHECKS))
]


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")] = False,
) -> None:
    """Show each setting, its value, and where it comes from: environment or file. Keys are masked.

    Example: pai-sdk config
    """
    if context.invoked_subcommand is not None:
        return
    settings = load_settings()
    rows = [*_rows(settings), *_key_rows()]
    if as_json:
        for name, value, source in rows:
            print_json({"setting": name, "value": value or None, "source": source or None})
        return
    print_facts([("file", str(config_path_of(os.environ)))])
    typer.echo("")
    columns = (Column("SETTING"), Column("VALUE"), Column("FROM", own_line=True))
    print_table(columns, [(name, value or "-", source) for name, value, source in rows])
    if settings.region_id is None and settings.endpoint is None:
        typer.echo("\nNo region and no endpoint is set: jobs go to the embedded service on this machine.")


@app.command()
def path() -> None:
    """Print the path of the config file; it need not exist.

    Example: pai-sdk config path
    """
    typer.echo(config_path_of(os.environ))


@app.command("set")
def set_(name: Name, value: Annotated[str, typer.Argument(help="Its value.")]) -> None:
    """Write a setting into the config file, after a check.

    Example: pai-sdk config set region_id cn-hangzhou
    """
    check = CHECKS[_known(name)]
    file = config_path_of(os.environ)
    checked = check(value.strip(), f"{name} (argument)")
    write_config(file, {name: checked})
    typer.echo(f"{name} = {checked} in {file}")
    source = load_settings().sources.get(name, "")
    if source.startswith("environment"):
        typer.echo(f"but it is not used: {source} is set and takes precedence", err=True)


@app.command()
def unset(name: Name) -> None:
    """Take a setting out of the config file.

    Example: pai-sdk config unset oss_endpoint
    """
    file = config_path_of(os.environ)
    write_config(file, {_known(name): None})
    typer.echo(f"{name} is not set in {file}")


def masked(text: str) -> str:
    """A secret as it may be shown: that it is there.

    Example:
        >>> masked("a-secret"), masked("")
        ('******', '')
    """
    return "******" if text else ""


def _known(name: str) -> str:
    if name not in CHECKS:
        hint = name_hint(name, CHECKS, shown=len(CHECKS))
        if name in _KEYS:
            hint = f"keys are never in the file: export {_KEYS[name][0]}=…"
        raise typer.BadParameter(f"{name!r} is not a setting; {hint}", param_hint="KEY")
    return name


def _rows(settings: Settings) -> list[tuple[str, str, str]]:
    """Name, value and source of each setting."""
    rows = []
    for name in CHECKS:
        source = settings.sources.get(name, "")
        if name in settings.passed_over:
            source = f"not used: {settings.passed_over[name]}"
        rows.append((name, getattr(settings, name) or "", source))
    return rows


def _key_rows() -> list[tuple[str, str, str]]:
    rows = []
    for name, (variable, may_be_seen) in _KEYS.items():
        value = os.environ.get(variable, "")
        shown = f"{value[:_SHOWN_OF_AN_ID]}…" if may_be_seen and value else masked(value)
        if value:
            rows.append((name, shown, f"environment variable {variable}"))
    if not rows:
        rows.append(("access_key_id", "", "not in the environment; `pai-sdk doctor` looks in all places"))
    return rows
