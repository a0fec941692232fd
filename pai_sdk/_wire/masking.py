"""Masks secrets in the JSON of requests and of job records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pai_sdk._wire.pai.secret_values import MASK, masked, masked_roles, masked_spec

if TYPE_CHECKING:
    from pai_sdk._wire.pai.request import TrainingJobRequest

_KEYS = frozenset({"AccessKeyId", "AccessKeySecret", "SecurityToken"})
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def public_request(request: TrainingJobRequest) -> dict[str, Any]:
    """Masks environment variables, keys, keys inside URLs, and values with names such as `password`."""
    return public_fields(request.to_wire())


def public_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Masks the secrets in fields of a request, or of a job's record, by their names on the wire."""
    public: dict[str, Any] = _without_keys(fields)
    if fields.get("Environments"):
        public["Environments"] = dict.fromkeys(fields["Environments"], MASK)
    if fields.get("HyperParameters"):
        public["HyperParameters"] = [_without_secret(each) for each in public["HyperParameters"]]
    spec = public.get("AlgorithmSpec")
    if isinstance(spec, dict):
        public["AlgorithmSpec"] = masked_spec(spec)
    if isinstance(public.get("Roles"), list):
        public["Roles"] = masked_roles(public["Roles"])
    return public


def _without_secret(hyperparameter: Any) -> Any:
    if not isinstance(hyperparameter, dict) or not isinstance(hyperparameter.get("Value"), str):
        return hyperparameter
    return {**hyperparameter, "Value": masked(str(hyperparameter.get("Name")), hyperparameter["Value"])}


def _without_keys(value: Any) -> Any:
    """Masks temporary keys, and `user:password@` in every URL, at any depth."""
    if isinstance(value, str):
        return _USER_IN_URL.sub(MASK, value)
    if isinstance(value, dict):
        return {key: MASK if key in _KEYS else _without_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_keys(item) for item in value]
    return value
