"""The file `~/.pai/config.json`: found, read, and replaced atomically."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pai_sdk._core.files import locked_folder, replace_file
from pai_sdk._core.names.hints import type_problem
from pai_sdk._core.paths import expanded
from pai_sdk.errors import SettingsError


def config_path_of(environ: Mapping[str, str], config_path: str | Path | None = None) -> Path:
    """Returns the path of the file: the argument, or `PAI_CONFIG_PATH`, or `~/.pai/config.json`."""
    if config_path is not None:
        if not isinstance(config_path, str | os.PathLike):
            raise SettingsError(f"config_path: {type_problem('the path of a file', config_path)}")
        return expanded(config_path)
    if environ.get("PAI_CONFIG_PATH"):
        return expanded(environ["PAI_CONFIG_PATH"])
    return Path.home() / ".pai" / "config.json"


def read_config(path: Path, *, must_exist: bool = False) -> dict[str, Any]:
    """Returns the file's content; empty if there is no file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        if must_exist:
            raise SettingsError(f"there is no config file {path}") from error
        return {}
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(
            f"{path}, line {error.lineno}, column {error.colno}: not JSON ({error.msg}); correct it"
        ) from error
    except (ValueError, RecursionError) as error:
        # The number is too long, or the nesting too deep.
        raise SettingsError(f"{path} cannot be read as JSON: {error}; correct it") from error
    if not isinstance(content, dict):
        raise SettingsError(f'{path}, line 1: expected a JSON object, such as {{"region_id": "cn-hangzhou"}}')
    return content


_FOREIGN_KEYS = re.compile("access_?key|secret|token|credential|^mode$|^current", re.IGNORECASE)

PROFILES = "profiles"
"""The key of the profiles in the file: an object of objects, each with settings as at the top."""


def profiles_in(content: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """Returns the profiles of a file: name to settings."""
    profiles = content.get(PROFILES) or {}
    if isinstance(profiles, list) and all(isinstance(each, dict) for each in profiles):
        raise SettingsError(
            f"{PROFILES} ({path}) are those of another program, such as the `pai` command of Alibaba Cloud, which "
            "uses the same file; set PAI_CONFIG_PATH to another file for the profiles of pai_sdk"
        )
    if not isinstance(profiles, dict) or not all(isinstance(each, dict) for each in profiles.values()):
        shape = '{"staging": {"region_id": "cn-shanghai"}}'
        raise SettingsError(f"{PROFILES} ({path}): expected a JSON object of objects, such as {shape}")
    return profiles


def is_of_another_program(settings: Mapping[str, Any]) -> bool:
    """Returns True if another program has written a profile or file: ours have no keys."""
    return isinstance(settings.get(PROFILES), list) or any(_FOREIGN_KEYS.search(name) for name in settings)


def write_config(path: Path, values: Mapping[str, str | None], *, profile: str | None = None) -> None:
    """Atomically sets values in the file, and removes keys whose value is None; only its owner can read it.

    Args:
        path: of the file.
        values: setting to value; None removes the setting.
        profile: the profile to change, which is created if necessary, and removed with its last setting; None for
            the settings at the top of the file.
    """
    # A symbolic link is kept; its target is replaced.
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Locked, because concurrent changes of another process would be lost.
        with locked_folder(target.parent):
            content = read_config(path)
            if profile is None:
                content = _changed(content, values)
            else:
                profiles = profiles_in(content, path)
                if is_of_another_program(profiles.get(profile, {})):
                    raise SettingsError(
                        f"the profile {profile} ({path}) has keys, so another program has written it, such as the "
                        "`pai` command of Alibaba Cloud; give another name, or set PAI_CONFIG_PATH to another file"
                    )
                changed = _changed(profiles.get(profile, {}), values)
                other_profiles = {
                    name: settings for name, settings in profiles.items() if name != profile or changed
                }
                new_profiles = {**other_profiles, profile: changed} if changed else other_profiles
                content = _changed(content, {PROFILES: new_profiles or None})
            replace_file(target, json.dumps(content, ensure_ascii=False, indent=2) + "\n", durable=True)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}") from error


def _changed(content: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    # A null of another program stays.
    return {
        name: value for name, value in {**content, **values}.items() if value is not None or name not in values
    }
