"""Masks secrets in bodies of DLC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.pai.secret_values import MASK, mask_value, masked_command

__all__ = ["public_body"]

_SECRETS = frozenset({"Password", "Auth", "CodeRepoAccessToken", "Token", "token", "WebTerminalUrl"})
_VARIABLES = frozenset({"Envs", "SystemEnvs", "RoleSystemEnvs"})
_ITEM_VARIABLES = frozenset({"CustomEnvs", "Env"})
_COMMANDS = frozenset({"UserCommand", "UserScript"})


def public_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a body with masked variables, passwords, tokens, keys, and secrets in commands."""
    public: dict[str, Any] = public_fields(_masked_object(body))
    return public


def _masked_object(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _masked(key, value) for key, value in body.items()}


def _masked(key: str, value: Any) -> Any:
    if key in _SECRETS and value:
        return MASK
    if key in _VARIABLES and isinstance(value, Mapping):
        return {name: _masked(key, item) if isinstance(item, Mapping) else MASK for name, item in value.items()}
    if key == "AdvancedSettings":  # may have JSON text with variables
        return mask_value(key, value)
    if isinstance(value, str):
        return _masked_text(key, value)
    if isinstance(value, list):
        return [_masked_item(key, each) for each in value]
    return _masked_object(value) if isinstance(value, Mapping) else value


def _masked_text(key: str, text: str) -> str:
    if key in _COMMANDS:
        return masked_command(text)
    if key != "Content":
        return text
    try:
        body = json.loads(text)  # the body of CreateJob, in a template
    except (ValueError, RecursionError):
        return text
    return json.dumps(public_body(body), ensure_ascii=False) if isinstance(body, dict) else text


def _masked_item(key: str, item: Any) -> Any:
    if isinstance(item, Mapping):
        is_variable = key in _ITEM_VARIABLES and "Value" in item
        return {**item, "Value": MASK} if is_variable else _masked_object(item)
    return masked_command(item) if key in ("Command", "Args") and isinstance(item, str) else item
