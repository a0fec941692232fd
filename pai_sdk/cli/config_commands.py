"""`pai-sdk config`: the settings in force and where each comes from; profiles; changes of the config file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from pai_sdk._core.config.file import config_path_of, read_config, write_config
from pai_sdk._core.config.rules import CHECKS, REGIONS
from pai_sdk._core.config.settings import Settings, active_profile, load_settings, profiles_of
from pai_sdk._core.names.hints import did_you_mean, name_hint, nearest
from pai_sdk._core.tables.table import Column, Table
from pai_sdk.cli import exit_codes
from pai_sdk.cli.options import Json
from pai_sdk.cli.selection.backend import complete_profile
from pai_sdk.cli.tables import print_json, print_properties, print_table
from pai_sdk.cli.usage.help import Commands
from pai_sdk.errors import NotFoundError

app = Commands(
    help="Show settings with their sources; set and unset those of the config file.",
    example="pai-sdk config set region_id cn-hangzhou",
    no_args_is_help=False,
)

_KEYS = {  # the parts of a key in the environment; whether its first characters are displayed
    "access_key_id": ("ALIBABA_CLOUD_ACCESS_KEY_ID", True),
    "access_key_secret": ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", False),
    "security_token": ("ALIBABA_CLOUD_SECURITY_TOKEN", False),
}
_VISIBLE_CHARACTERS = 4
_PROFILE_SETTINGS = ("region_id", "workspace_id", "endpoint")
_PROFILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Name = Annotated[
    str, typer.Argument(metavar="KEY", help="region_id, workspace_id, …", autocompletion=lambda: list(CHECKS))
]
Profile = Annotated[
    str | None, typer.Option(metavar="NAME", help="A profile of the config file.", autocompletion=complete_profile)
]


@app.callback(invoke_without_command=True)
def show(context: typer.Context, profile: Profile = None, as_json: Json = False) -> None:
    """Show each setting, its value, and where it comes from: environment or file. Keys are masked.

    Example: pai-sdk config
    """
    if context.invoked_subcommand is None:
        _show(profile, as_json=as_json)
    elif profile is not None or as_json:
        raise typer.BadParameter(f"write the options behind `{context.invoked_subcommand}`")


@app.command("list")
def list_(profile: Profile = None, as_json: Json = False) -> None:
    """Show each setting, its value, and where it comes from, as `pai-sdk config` does.

    Example: pai-sdk config list --profile staging
    """
    _show(profile, as_json=as_json)


def _show(profile: str | None, *, as_json: bool) -> None:
    settings = load_settings(profile=profile)
    rows = [*_rows(settings), *_key_rows()]
    columns = (
        Column("SETTING", "setting"),
        Column("VALUE", "value"),
        Column("FROM", "source", format=lambda source: source or "", wraps=True),
    )
    table = Table(columns, [(name, value or None, source or None) for name, value, source in rows])
    if as_json:
        print_table(table, as_json=True)
        return
    properties = [("file", str(config_path_of(os.environ)))]
    print_properties(properties if settings.profile is None else [*properties, ("profile", settings.profile)])
    typer.echo("")
    print_table(table)
    if settings.is_empty:
        typer.echo(f"\nNo region and no endpoint is set: jobs go to {_target(settings)}.")


@app.command()
def get(name: Name, profile: Profile = None) -> None:
    """Print the value of one setting, for scripts. The exit code is 102 where it is not set.

    Example: pai-sdk config get workspace_id
    """
    value = getattr(load_settings(profile=profile), _checked_name(name))
    if value is None:
        raise typer.Exit(exit_codes.NOT_FOUND)
    typer.echo(value)


@app.command()
def profiles(as_json: Json = False) -> None:
    """List the profiles of the config file; `*` marks the one that PAI_PROFILE names.

    Example: pai-sdk config profiles
    """
    file, used = config_path_of(os.environ), active_profile(None, os.environ)
    profiles_by_name = profiles_of(file)
    if as_json:
        for name, settings in profiles_by_name.items():
            print_json({"profile": name, "used": name == used, **{key: settings.get(key) for key in CHECKS}})
        return
    if not profiles_by_name:
        typer.echo(f"no profiles in {file}; to create one: pai-sdk config set region_id … --profile NAME")
        return
    columns = [*map(Column, ("", "PROFILE", "REGION", "WORKSPACE")), Column("ENDPOINT", drop=1)]
    rows = [
        ("*" if name == used else "", name, *(str(settings.get(key) or "-") for key in _PROFILE_SETTINGS))
        for name, settings in profiles_by_name.items()
    ]
    print_table(Table(columns, rows))


@app.command()
def path() -> None:
    """Print the path of the config file, which may not exist yet.

    Example: pai-sdk config path
    """
    typer.echo(config_path_of(os.environ))


@app.command("set")
def set_(
    name: Name,
    value: Annotated[str, typer.Argument(help="The value of the setting.")],
    profile: Profile = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Accept a region that is not in the list of known regions.")
    ] = False,
) -> None:
    """Write a setting into the config file, after a check; with --profile, into that profile.

    Example: pai-sdk config set region_id cn-hangzhou
    """
    check = CHECKS[_checked_name(name)]
    file, profile = config_path_of(os.environ), _to_write(profile)
    checked = check(value.strip(), f"{name} (argument)")
    before = _file_content(file, profile)
    if name == "region_id" and not no_check:
        _refuse_unknown_region(checked, before)
    write_config(file, {name: checked}, profile=profile)
    typer.echo(f"{name} = {checked} in {_target_text(file, profile)}")
    if profile is None:
        source = load_settings(profile="").sources.get(name, "")
        if source.startswith("environment"):
            typer.echo(f"but it is not used: {source} is set and takes precedence", err=True)
    _report_target_change(before, file, profile)


@app.command()
def unset(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="region_id, workspace_id, …", autocompletion=lambda: list(CHECKS)),
    ] = None,
    profile: Profile = None,
    all_: Annotated[bool, typer.Option("--all", help="Remove the profile with all its settings.")] = False,
) -> None:
    """Remove settings from the config file, or from one of its profiles.

    Example: pai-sdk config unset oss_endpoint
    """
    file, profile = config_path_of(os.environ), _to_write(profile)
    if all_ == bool(names) or (all_ and profile is None):
        raise typer.BadParameter("give settings, or --all with --profile", param_hint="KEY")
    before = _file_content(file, profile)
    if profile is not None and profile not in profiles_of(file):
        raise NotFoundError(f"there is no profile {profile!r} in {file}", code="ProfileNotFound", status_code=404)
    chosen = before if all_ else [_checked_name(name) for name in names or ()]
    write_config(file, dict.fromkeys(chosen), profile=profile)
    removed = f"{', '.join(chosen)} {'is' if len(chosen) == 1 else 'are'} not set in"
    typer.echo(f"profile {profile} is removed from {file}" if all_ else f"{removed} {_target_text(file, profile)}")
    _report_target_change(before, file, profile)


def _to_write(profile: str | None) -> str | None:
    """Checks the name of a profile to write to; `PAI_PROFILE` is used for reading only."""
    if profile is not None and not _PROFILE_NAME.fullmatch(profile):
        raise typer.BadParameter(
            f"{profile!r} is not a valid name of a profile: use letters, digits, _, - and .",
            param_hint="--profile",
        )
    return profile


def _file_content(file: Path, profile: str | None) -> dict[str, Any]:
    return dict(read_config(file) if profile is None else profiles_of(file).get(profile, {}))


def _target_text(file: Path, profile: str | None) -> str:
    return str(file) if profile is None else f"profile {profile} of {file}"


def _refuse_unknown_region(region: str, settings: Mapping[str, Any]) -> None:
    """Raises BadParameter for an unknown region, unless an endpoint is set, whose region may have any name."""
    if region not in REGIONS and not settings.get("endpoint"):
        hint = did_you_mean(nearest(region, REGIONS)) or f"available: {', '.join(REGIONS[:4])}, ….".strip()
        raise typer.BadParameter(
            f"{region!r} is not a known region; {hint} For a service of your own, set its endpoint first; "
            "--no-check accepts any region",
            param_hint="VALUE",
        )


def _report_target_change(before: Mapping[str, Any], file: Path, profile: str | None) -> None:
    """Prints the new target of jobs, if a change of the settings outside of profiles has changed it."""
    if profile is not None:
        return
    old, new = (Settings(**_service_of(content)) for content in (before, _file_content(file, None)))
    if _target(old) == _target(new):
        return
    if old.is_empty and urlsplit(new.pai_url).hostname not in _LOOPBACK:
        typer.echo(f"Jobs now leave this machine: they go to {_target(new)}. `--embedded` keeps a job here.")
    else:
        typer.echo(f"Jobs now go to {_target(new)}.")


def _service_of(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: content.get(name) for name in ("region_id", "endpoint")}


def _target(settings: Settings) -> str:
    if settings.is_empty:
        return "the embedded service on this machine"
    return settings.endpoint or f"Alibaba Cloud PAI in {settings.region_id}"


def masked(text: str) -> str:
    """Returns a mask for a secret; empty for an empty one."""
    return "******" if text else ""


def _checked_name(name: str) -> str:
    if name not in CHECKS:
        hint = name_hint(name, CHECKS, max_names=len(CHECKS))
        if name in _KEYS:
            hint = f"keys are never in the file: export {_KEYS[name][0]}=…"
        raise typer.BadParameter(f"{name!r} is not a setting; {hint}", param_hint="KEY")
    return name


def _rows(settings: Settings) -> list[tuple[str, str, str]]:
    """Returns name, value and source of each setting."""
    rows = []
    for name in CHECKS:
        source = settings.sources.get(name, "")
        if name in settings.passed_over:
            source = f"not used: {settings.passed_over[name]}"
        rows.append((name, getattr(settings, name) or "", source))
    return rows


def _key_rows() -> list[tuple[str, str, str]]:
    rows = []
    for name, (variable, is_partly_visible) in _KEYS.items():
        value = os.environ.get(variable, "")
        text = f"{value[:_VISIBLE_CHARACTERS]}…" if is_partly_visible and value else masked(value)
        if value:
            rows.append((name, text, f"environment variable {variable}"))
    if not rows:
        rows.append(("access_key_id", "", "not in the environment; `pai-sdk doctor` checks all sources"))
    return rows
