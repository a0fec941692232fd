"""Settings: from arguments, from the environment, from `~/.pai/config.json`, in this order."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pai_sdk._core.config.file import (
    PROFILES,
    config_path_of,
    is_of_another_program,
    profiles_in,
    read_config,
    write_config,
)
from pai_sdk._core.config.rules import CHECKS, api_region_of
from pai_sdk._core.endpoint import scheme_and_host
from pai_sdk._core.names.hints import name_hint, type_problem
from pai_sdk.errors import SettingsError

_log = logging.getLogger(__name__)

_VARIABLES: dict[str, tuple[str, ...]] = {
    "region_id": ("PAI_REGION_ID", "ALIBABA_CLOUD_REGION_ID"),
    "workspace_id": ("PAI_WORKSPACE_ID", "PAI_AI_WORKSPACE_ID"),
    "oss_bucket_name": ("PAI_OSS_BUCKET_NAME",),
    "oss_endpoint": ("PAI_OSS_ENDPOINT",),
    "endpoint": ("PAI_ENDPOINT",),
    "aiworkspace_endpoint": ("PAI_AIWORKSPACE_ENDPOINT",),
    "dlc_endpoint": ("PAI_DLC_ENDPOINT",),
    "api": ("PAI_API",),
    "network": ("PAI_NETWORK_TYPE",),
    "trusted_oss_endpoints": ("PAI_TRUSTED_OSS_ENDPOINTS",),
}
PROFILE_VARIABLE = "PAI_PROFILE"
"""The variable that names the profile, where no argument does."""

# Names as common as REGION mean ours only where PAI has set them: in its notebooks (DSW) and jobs (DLC).
_PAI_VARIABLES = ("DSW_INSTANCE_ID", "DLC_JOB_ID")
_REGION_IN_PAI = ("dsw_region", "REGION")
_REGIONAL_SETTINGS = frozenset(
    {"workspace_id", "oss_bucket_name", "oss_endpoint", "endpoint", "aiworkspace_endpoint", "dlc_endpoint"}
)


@dataclass(frozen=True)
class Settings:
    """The settings in use. A setting without a value is None.

    Attributes:
        region_id: region of PAI and OSS, such as `cn-hangzhou`.
        workspace_id: the workspace jobs belong to.
        oss_bucket_name: bucket for code, local inputs and outputs.
        oss_endpoint: host of OSS, when not the region's.
        endpoint: host of the PAI API, when not the region's.
        aiworkspace_endpoint: host of the workspace API, when not the region's.
        dlc_endpoint: host of the API of DLC, when neither the region's nor that of a service of your own.
        api: how services are asked for jobs: `trainingjob` or `dlc`; None is `trainingjob`.
        network: `PUBLIC` or `VPC`: which of the region's hosts are used; None is public.
        trusted_oss_endpoints: further hosts that an `oss://` URI may name, with commas between them.
        prices: instance type to the price of an instance and hour, of the config file only; see `max_cost`.
        profile: the profile of the config file in use; None without one.
        sources: setting to its origin, for messages.

    Example:
        >>> settings = load_settings({"region_id": "cn-hangzhou", "network": "VPC"}, environ={})
        >>> settings.pai_url, settings.oss_url
        ('https://pai-vpc.cn-hangzhou.aliyuncs.com', 'https://oss-cn-hangzhou-internal.aliyuncs.com')
    """

    region_id: str | None = None
    workspace_id: str | None = None
    oss_bucket_name: str | None = None
    oss_endpoint: str | None = None
    endpoint: str | None = None
    aiworkspace_endpoint: str | None = None
    dlc_endpoint: str | None = None
    api: str | None = None
    network: str | None = None
    trusted_oss_endpoints: str | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    profile: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    passed_over: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """By setting: why its value is not used, although there is one: another region or a profile is in use."""

    @property
    def is_empty(self) -> bool:
        """True if they name no service, so that jobs go to the embedded one; a profile always names one.

        Example:
            >>> Settings().is_empty, Settings(profile="staging").is_empty
            (True, False)
        """
        return self.region_id is None and self.endpoint is None and self.profile is None

    @property
    def pai_url(self) -> str:
        """The PAI API, as a URL without a slash at its end.

        Raises:
            SettingsError: neither an endpoint nor a region is set.
        """
        return self._url(self.endpoint, "pai{vpc}.{region}.aliyuncs.com", "-vpc")

    @property
    def aiworkspace_url(self) -> str:
        """The workspace API, as a URL without a slash at its end."""
        return self._url(self.aiworkspace_endpoint, "aiworkspace{vpc}.{region}.aliyuncs.com", "-vpc")

    @property
    def dlc_url(self) -> str:
        """The API of DLC, as a URL without a slash at its end. A service of your own has it at its one endpoint.

        Example:
            >>> Settings(region_id="cn-hangzhou").dlc_url
            'https://pai-dlc.cn-hangzhou.aliyuncs.com'
            >>> Settings(region_id="cn-hangzhou", endpoint="http://gpu-box:8787").dlc_url
            'http://gpu-box:8787'
        """
        is_custom_service = self.endpoint is not None and api_region_of(self.endpoint) is None
        endpoint = self.dlc_endpoint or (self.endpoint if is_custom_service else None)
        return self._url(endpoint, "pai-dlc{vpc}.{region}.aliyuncs.com", "-vpc")

    @property
    def oss_url(self) -> str:
        """OSS, as a URL without a slash at its end."""
        return self._url(self.oss_endpoint, "oss-{region}{vpc}.aliyuncs.com", "-internal")

    @property
    def trusted_endpoints(self) -> tuple[str, ...]:
        """The hosts of `trusted_oss_endpoints`, one by one.

        Example:
            >>> load_settings({"trusted_oss_endpoints": "oss.example.com, http://10.0.0.5:9000"}).trusted_endpoints
            ('oss.example.com', 'http://10.0.0.5:9000')
        """
        return tuple(each for each in (self.trusted_oss_endpoints or "").split(",") if each)

    def _url(self, endpoint: str | None, host: str, vpc: str) -> str:
        if endpoint:
            return "{}://{}".format(*scheme_and_host(endpoint))
        self.require("region_id")
        return "https://" + host.format(region=self.region_id, vpc=vpc if self.network == "VPC" else "")

    def require(self, *names: str) -> None:
        """Check that settings have values.

        Args:
            names: the settings, as attributes of this class.

        Raises:
            SettingsError: some are missing; all of those are named, each with the ways to set it.

        Example:
            >>> Settings(region_id="cn-hangzhou").require("region_id")
        """
        missing = [name for name in names if not getattr(self, name)]
        if not missing:
            return
        subject = "a setting is" if len(missing) == 1 else f"{len(missing)} settings are"
        ways = "".join(f"\n  - {self._how_to_set(name)}" for name in missing)
        without = "" if self.region_id else "\nWithout an account: Session.embedded() needs none of them"
        raise SettingsError(f"{subject} missing:{ways}{without}")

    def _how_to_set(self, name: str) -> str:
        reason = f" ({self.passed_over[name]})" if name in self.passed_over else ""
        if self.profile is not None:
            return f"{name}{reason}: pai-sdk config set {name} … --profile {self.profile}, or Session({name}=…)"
        return (
            f"{name}{reason}: Session({name}=…), or export {_VARIABLES[name][0]}=…, "
            f'or "{name}": "…" in {config_path_of(os.environ)}'
        )


_NAMES = tuple(f.name for f in fields(Settings) if f.name in _VARIABLES)


@dataclass(frozen=True)
class _Source:
    """Values from one source; `locations` names the origin of each, for messages."""

    values: Mapping[str, str]
    locations: Mapping[str, str]


def load_settings(
    overrides: Mapping[str, str | None] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    config_path: str | Path | None = None,
    profile: str | None = None,
) -> Settings:
    """Collect the settings: arguments win over the environment, and that over the config file. No network.

    With a profile, settings come from the arguments and from the profile only. Neither the variables of the
    environment nor the settings at the top of the file are used, because they may belong to another service.

    Workspace, bucket and endpoints belong to a region. If a source names another region than the one in use,
    its other values are ignored: a bucket of Hangzhou is of no use in Shanghai.

    Args:
        overrides: setting to value; None and empty mean "not given".
        environ: in place of `os.environ`.
        config_path: in place of `PAI_CONFIG_PATH`, or else `~/.pai/config.json`.
        profile: a profile of the config file, in place of `PAI_PROFILE`; "" uses none.

    Raises:
        SettingsError: a value is malformed, an endpoint is of another region than `region_id`, the file is not
            a JSON object, or it has no such profile.

    Example:
        >>> load_settings({"region_id": "cn-shanghai"}, environ={"PAI_WORKSPACE_ID": "7"}).workspace_id
        '7'
    """
    environ = os.environ if environ is None else environ
    profile = active_profile(profile, environ)
    sources = [_from_arguments(overrides or {}), *_lower_sources(environ, config_path, profile)]
    region = next((s.values["region_id"] for s in sources if "region_id" in s.values), None)
    values: dict[str, str] = {}
    locations: dict[str, str] = {}
    unused_values: dict[str, str] = {}
    for source in sources:
        source_region = source.values.get("region_id", region)
        for name, value in source.values.items():
            if name in values:
                continue
            if source_region != region and name in _REGIONAL_SETTINGS:
                unused_values[name] = f"{source.locations[name]} has one for {source_region}, not {region}"
                continue
            values[name] = CHECKS[name](value, f"{name} ({source.locations[name]})")
            locations[name] = source.locations[name]
    if profile is not None:
        unused = _from_environment(environ)
        unused_values |= {
            name: f"{location} is set, but ignored with the profile {profile!r}"
            for name, location in unused.locations.items()
            if name not in values
        }
    _check_regions(values, locations)
    pai_region = next((environ[name] for name in _REGION_IN_PAI if environ.get(name)), region)
    if "network" not in values and _is_in_pai(environ) and pai_region == region:
        # Inside PAI the internal hosts of its region can always be reached, and are free of charge.
        values["network"], locations["network"] = "VPC", "running inside PAI"
    for name in unused_values.keys() - values.keys():
        _log.info("%s: %s", name, unused_values[name])
    prices = _prices(config_path_of(environ, config_path), profile)
    return Settings(**values, prices=prices, profile=profile, sources=locations, passed_over=unused_values)


def active_profile(name: str | None, environ: Mapping[str, str]) -> str | None:
    """Returns the profile to use: the argument ("" for none), or that of `PAI_PROFILE`; None for none."""
    if name is not None and not isinstance(name, str):
        raise SettingsError(f"profile: {type_problem('the name of a profile', name)}")
    selected = environ.get(PROFILE_VARIABLE, "") if name is None else name
    return selected.strip() or None


def profiles_of(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the profiles of the config file: name to unchecked settings."""
    return profiles_in(read_config(path), path)


def _prices(path: Path, profile: str | None) -> dict[str, float]:
    content = read_config(path)
    profile_settings = profiles_in(content, path).get(profile, {}) if profile is not None else {}
    prices = profile_settings.get("prices") or content.get("prices") or {}
    if not isinstance(prices, dict) or not all(_is_price(price) for price in prices.values()):
        raise SettingsError(
            f'prices ({path}): expected a JSON object of numbers, such as {{"ecs.c6.large": 0.78}}'
        )
    return {name: float(price) for name, price in prices.items()}


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _check_regions(values: Mapping[str, str], locations: Mapping[str, str]) -> None:
    region = values.get("region_id")
    for name in ("endpoint", "aiworkspace_endpoint", "dlc_endpoint"):
        endpoint_region = api_region_of(values[name]) if name in values else None
        if region and endpoint_region and endpoint_region != region:
            raise SettingsError(
                f"{name} ({locations[name]}): {values[name]} is a host of {endpoint_region}, but region_id "
                f"({locations['region_id']}) is {region}; change one of them"
            )


def save_config(settings: Settings, path: str | Path | None = None) -> Path:
    """Write the settings that have values into the config file; its other content stays. Keys are never written.

    Settings of a profile are written into that profile.

    Args:
        settings: the settings to write.
        path: in place of `PAI_CONFIG_PATH`, or else `~/.pai/config.json`.

    Returns:
        The file, readable by its owner only.

    Raises:
        SettingsError: the file that is there is not a JSON object, or it cannot be written.
    """
    target = config_path_of(os.environ, path)
    values = {name: getattr(settings, name) for name in _NAMES if getattr(settings, name)}
    write_config(target, values, profile=settings.profile)
    return target


def _from_arguments(overrides: Mapping[str, str | None]) -> _Source:
    unknown = sorted(set(overrides) - set(_NAMES))
    if unknown:
        raise SettingsError(f"unknown setting: {', '.join(unknown)}; available: {', '.join(_NAMES)}")
    return _source({name: overrides.get(name) for name in _NAMES}, "argument")


def _from_environment(environ: Mapping[str, str]) -> _Source:
    values: dict[str, str] = {}
    locations: dict[str, str] = {}
    for name in _NAMES:
        variables = _VARIABLES[name] + (_REGION_IN_PAI if name == "region_id" and _is_in_pai(environ) else ())
        variable = next((v for v in variables if environ.get(v, "").strip()), None)
        if variable:
            values[name], locations[name] = environ[variable].strip(), f"environment variable {variable}"
    return _Source(values, locations)


def _is_in_pai(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in _PAI_VARIABLES)


def _lower_sources(
    environ: Mapping[str, str], config_path: str | Path | None, profile: str | None
) -> tuple[_Source, ...]:
    """Returns the sources below the arguments, in their order."""
    if profile is None:
        return _from_environment(environ), _from_file(environ, config_path)
    return (_from_profile(profile, config_path_of(environ, config_path)),)


def _from_profile(name: str, path: Path) -> _Source:
    profiles = profiles_of(path)
    if name not in profiles:
        hint = name_hint(name, profiles, max_names=len(profiles)) if profiles else "there are none"
        raise SettingsError(
            f"there is no profile {name!r} in {path}; {hint}{'' if hint.endswith('?') else '.'} "
            f"To create it: pai-sdk config set region_id … --profile {name}"
        )
    content = profiles[name]
    _warn_of_unknown(content, f"{path}, profile {name}")
    return _source({each: content.get(each) for each in _NAMES}, f"profile {name} in {path}")


def _warn_of_unknown(content: Mapping[str, Any], location: str) -> None:
    if is_of_another_program(content):
        _log.info("%s: is also the file of another program, whose settings are ignored", location)
        return
    unknown = sorted(set(content) - {*_NAMES, "prices", PROFILES})
    if unknown:
        _log.warning("%s: unknown settings are ignored: %s", location, ", ".join(unknown))


def _from_file(environ: Mapping[str, str], config_path: str | Path | None) -> _Source:
    path = config_path_of(environ, config_path)
    content = read_config(path, must_exist=config_path is not None)
    if config_path is None and environ.get("PAI_CONFIG_PATH") and not path.exists():
        _log.warning("PAI_CONFIG_PATH names %s, which does not exist", path)
    _warn_of_unknown(content, str(path))
    values = {name: content.get(name) for name in _NAMES}
    if is_of_another_program(content):
        values = {name: value for name, value in values.items() if type(value) in (str, int)}
    return _source(values, str(path))


def _source(raw_values: Mapping[str, Any], location: str) -> _Source:
    strings = {name: _text(value, f"{name} ({location})") for name, value in raw_values.items()}
    values = {name: text for name, text in strings.items() if text}
    return _Source(values, dict.fromkeys(values, location))


def _text(value: Any, where: str) -> str:
    # A workspace id may be written as a number; True and [7] are mistakes.
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SettingsError(f"{where}: {type_problem('a string', value)}")
    return str(value).strip()
