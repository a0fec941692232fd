"""The file `~/.pai/config.json`: found, read, and replaced atomically."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pai_sdk.base.files import locked_folder, replace_file
from pai_sdk.base.hints import is_of_type
from pai_sdk.base.paths import expanded
from pai_sdk.errors import SettingsError


def config_path_of(environ: Mapping[str, str], given: str | Path | None = None) -> Path:
    """The path of the file: the path given, else `PAI_CONFIG_PATH`, else `~/.pai/config.json`.

    Raises:
        SettingsError: what was given is not a path.
    """
    if given is not None:
        if not isinstance(given, str | os.PathLike):
            raise SettingsError(f"config_path {is_of_type(given)}; give the path of a file")
        return expanded(given)
    if environ.get("PAI_CONFIG_PATH"):
        return expanded(environ["PAI_CONFIG_PATH"])
    return Path.home() / ".pai" / "config.json"


def read_config(path: Path, *, must_exist: bool = False) -> dict[str, Any]:
    """The file's content; empty when there is no file.

    Raises:
        SettingsError: it cannot be read or is not a JSON object, or it is missing and must exist.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        if must_exist:
            raise SettingsError(f"there is no config file {path}") from error
        return {}
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not a text in UTF-8; write it again, as JSON") from error
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(
            f"{path}, line {error.lineno}, column {error.colno}: not JSON ({error.msg}); correct it"
        ) from error
    except (ValueError, RecursionError) as error:  # a number too long or a nesting too deep
        raise SettingsError(f"{path} cannot be read as JSON: {error}; correct it") from error
    if not isinstance(content, dict):
        raise SettingsError(f'{path}, line 1: a JSON object is expected, such as {{"region_id": "cn-hangzhou"}}')
    return content


_OF_OTHERS = re.compile("access_?key|secret|token|credential|^mode$|^current", re.IGNORECASE)

PROFILES = "profiles"
"""The key of the profiles in the file: an object of objects, each with settings as at the top."""


def profiles_in(content: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """The profiles of a file: name to its settings.

    Args:
        content: of the file.
        path: of the file, for the error.

    Raises:
        SettingsError: they are not written as an object of objects.

    Example:
        >>> profiles_in({"profiles": {"staging": {"region_id": "cn-shanghai"}}}, Path("config.json"))
        {'staging': {'region_id': 'cn-shanghai'}}
    """
    found = content.get(PROFILES) or {}
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        raise SettingsError(
            f"{PROFILES} ({path}) are those of another program, such as the `pai` command of Alibaba Cloud, which "
            "uses the same file; set PAI_CONFIG_PATH to another file for the profiles of pai_sdk"
        )
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        shape = '{"staging": {"region_id": "cn-shanghai"}}'
        raise SettingsError(f"{PROFILES} ({path}): write an object of objects, such as {shape}")
    return found


def is_of_another_program(settings: Mapping[str, Any]) -> bool:
    """True for a profile, or a file, that another program has written: ours have no keys.

    Example:
        >>> is_of_another_program({"access_key_id": "id"}), is_of_another_program({"region_id": "cn-shanghai"})
        (True, False)
    """
    return isinstance(settings.get(PROFILES), list) or any(_OF_OTHERS.search(name) for name in settings)


def write_config(path: Path, values: Mapping[str, str | None], *, profile: str | None = None) -> None:
    """Add values to the file, and take out those that are None, by an atomic replace; only its owner may read it.

    Args:
        path: of the file.
        values: setting to value.
        profile: the profile to change, which is made if need be, and removed with its last setting; otherwise
            the settings at the top of the file.

    Raises:
        SettingsError: the file that is there is not a JSON object, its profile is that of another program, or it
            cannot be written.
    """
    # A symbolic link is kept; its target is replaced.
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked_folder(target.parent):  # else the changes of another process that writes now would be lost
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
                others = {name: settings for name, settings in profiles.items() if name != profile or changed}
                kept = {**others, profile: changed} if changed else others
                content = _changed(content, {PROFILES: kept or None})
            replace_file(target, json.dumps(content, ensure_ascii=False, indent=2) + "\n", durable=True)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}") from error


def _changed(content: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    # A null of another program stays.
    return {
        name: value for name, value in {**content, **values}.items() if value is not None or name not in values
    }
