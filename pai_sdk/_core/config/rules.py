"""Checks of the settings' values."""

from __future__ import annotations

import re
from collections.abc import Callable

from pai_sdk._core.endpoint import scheme_and_host
from pai_sdk.errors import SettingsError

_REGION = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_WORKSPACE = re.compile(r"[A-Za-z0-9_.-]+")
_API_HOST = re.compile(
    r"(?:pai|paistudio|aiworkspace|pai-dlc)(?:-vpc)?\.([a-z0-9-]+)\.(?:aliyuncs\.com|data\.aliyun\.com)"
)


def api_region_of(endpoint: str) -> str | None:
    """Returns the region that a standard endpoint of PAI or its workspaces names; None for others."""
    match = _API_HOST.fullmatch(scheme_and_host(endpoint)[1])
    return match[1] if match else None


def _check_region(value: str, where: str) -> str:
    if not _REGION.fullmatch(value):
        raise SettingsError(f"{where}: {value!r} is not a region; write one such as cn-hangzhou")
    return value


def _check_workspace(value: str, where: str) -> str:
    if not _WORKSPACE.fullmatch(value) or value == "None":
        raise SettingsError(f"{where}: {value!r} is not a workspace id; the console shows it, such as 12345")
    return value


def _check_bucket(value: str, where: str) -> str:
    if not _BUCKET.fullmatch(value):
        raise SettingsError(
            f"{where}: {value!r} is not a bucket name (3 to 63 of a-z, 0-9, -); write it without oss:// and host"
        )
    return value


def _check_endpoint(value: str, where: str) -> str:
    try:
        scheme_and_host(value)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from None
    return value


def _check_endpoints(value: str, where: str) -> str:
    return ",".join(_check_endpoint(each.strip(), where) for each in value.split(",") if each.strip())


def _check_network(value: str, where: str) -> str:
    if value.upper() not in ("PUBLIC", "VPC"):
        raise SettingsError(f"{where}: {value!r} is not a network; write PUBLIC or VPC")
    return value.upper()


def _check_api(value: str, where: str) -> str:
    if value.lower() not in ("trainingjob", "dlc"):
        raise SettingsError(f"{where}: {value!r} is not an API of jobs; write trainingjob or dlc")
    return value.lower()


REGIONS = (
    *("cn-hangzhou", "cn-shanghai", "cn-beijing", "cn-shenzhen", "cn-zhangjiakou", "cn-wulanchabu"),
    *("cn-guangzhou", "cn-chengdu", "cn-qingdao", "cn-huhehaote", "cn-heyuan", "cn-nanjing", "cn-fuzhou"),
    *("cn-hongkong", "cn-wuhan-lr", "cn-zhengzhou-jva", "cn-hangzhou-finance", "cn-shanghai-finance-1"),
    *("cn-shenzhen-finance-1", "cn-beijing-finance-1", "cn-north-2-gov-1"),
    *("ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-5", "ap-southeast-6", "ap-southeast-7"),
    *("ap-northeast-1", "ap-northeast-2", "ap-south-1", "us-east-1", "us-west-1", "na-south-1"),
    *("eu-central-1", "eu-west-1", "me-east-1", "me-central-1"),
)
"""The regions of Alibaba Cloud, to find typing mistakes; there may be newer ones."""

CHECKS: dict[str, Callable[[str, str], str]] = {
    "region_id": _check_region,
    "workspace_id": _check_workspace,
    "oss_bucket_name": _check_bucket,
    "oss_endpoint": _check_endpoint,
    "endpoint": _check_endpoint,
    "aiworkspace_endpoint": _check_endpoint,
    "dlc_endpoint": _check_endpoint,
    "api": _check_api,
    "network": _check_network,
    "trusted_oss_endpoints": _check_endpoints,
}
"""Setting to its check: (value, origin) returns the normalized value, or raises SettingsError."""
