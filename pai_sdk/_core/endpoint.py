"""Endpoints: the address of a service (`Endpoint`), and the parsing of endpoint strings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from pai_sdk.errors import SettingsError

_ENDPOINT = re.compile(r"(?:(?P<scheme>https?)://)?(?P<host>[a-z0-9_.-]+(?::[0-9]{1,5})?)/?", re.IGNORECASE)
_IPV6 = re.compile(r"(?:https?://)?(?:\[[0-9a-f:.]+\](?::[0-9]+)?|[0-9a-f]*(?::[0-9a-f]*){2,})/?", re.IGNORECASE)
_ALIYUN_HOST = re.compile(r"oss-(?P<region>[a-z0-9-]+?)(?:-internal)?\.aliyuncs\.com")
# `oss-cn-hangzhou`, `vpc100-oss-cn-hangzhou`, `oss-accelerate`, with IPv6 `cn-hangzhou.oss`. Below aliyuncs.com
# there are also the names of functions and load balancers, behind which the program of any customer reads what is
# sent; `oss-object-process` hands requests to a function, too.
_OSS_HOST = re.compile(
    r"(?:[a-z0-9-]+\.)*(?:vpc100-)?oss(?!-object-process)(?:-[a-z0-9-]+)?\.aliyuncs\.com(?::[0-9]+)?"
)
_NOT_A_REGION = frozenset({"accelerate", "accelerate-overseas"})


class Endpoint:
    """The address of a service, which can be found again after it moved.

    Clients share the object and read `url` for each attempt, so all of them follow a service that moved.
    """

    def __init__(self, url: str, find_again: Callable[[], str | None] | None = None) -> None:
        # Scheme and host, without a slash at the end.
        self.url = with_scheme(url)
        # All hosts of the service so far, with their ports.
        self.hosts = {host_of(url)}
        # Starts the service again if necessary; returns its endpoint if it has moved.
        self._find_again = find_again

    def __str__(self) -> str:
        return self.url

    def revive(self) -> None:
        """Finds the service again, if possible, and updates `url`."""
        moved_to = self._find_again() if self._find_again is not None else None
        if moved_to is not None:
            self.url = with_scheme(moved_to)
            self.hosts.add(host_of(moved_to))


def scheme_and_host(endpoint: str) -> tuple[str, str]:
    """Returns scheme and host (with its port); an endpoint without a scheme is http on this machine, else https.

    oss2 uses http for every endpoint without a scheme, so both agree for a service on this machine.
    """
    match = _ENDPOINT.fullmatch(endpoint)
    if not match:
        if _IPV6.fullmatch(endpoint):  # oss2 refuses them
            problem = "is an IPv6 address, which the OSS library cannot use"
            raise SettingsError(f"{endpoint!r} {problem}; write a host name that resolves to it")
        # It may contain a user name and password, so the part before an @ is not shown.
        redacted = re.sub(r"//.*@", "//…@", endpoint)
        raise SettingsError(f"{redacted!r} is not an endpoint; write host, host:port or http(s)://host:port")
    host = match["host"].lower()
    return (match["scheme"] or ("http" if _is_on_loopback(host) else "https")).lower(), host


def with_scheme(endpoint: str) -> str:
    """Returns the endpoint as a URL without a slash at its end."""
    return "{}://{}".format(*scheme_and_host(endpoint.strip()))


def short_endpoint(url: str) -> str:
    """Returns the shortest endpoint with that URL: without its scheme, where `with_scheme` adds the same one."""
    host = host_of(url)
    return host if with_scheme(host) == with_scheme(url) else url


def host_of(endpoint: str) -> str:
    """Returns the host of an endpoint, with its port if it has one, in lower case."""
    return with_scheme(endpoint).partition("://")[2].lower()


def region_of(endpoint: str) -> str | None:
    """Returns the region that an endpoint of Alibaba Cloud names, or None for others."""
    match = _ALIYUN_HOST.fullmatch(host_of(endpoint))
    return match["region"] if match and match["region"] not in _NOT_A_REGION else None


def is_alibaba_oss(endpoint: str) -> bool:
    """Returns True if the endpoint belongs to the OSS of Alibaba Cloud, and to no other server."""
    return _OSS_HOST.fullmatch(host_of(endpoint)) is not None


def is_loopback(endpoint: str) -> bool:
    """Returns True if the endpoint is this machine."""
    return _is_on_loopback(host_of(endpoint))


def _is_on_loopback(host: str) -> bool:
    name = host.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
