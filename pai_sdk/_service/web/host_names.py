"""The host names under which browsers can request the page, with their schemes."""

from __future__ import annotations

import re
from collections.abc import Iterable

LOOPBACK_NAMES = frozenset({"127.0.0.1", "[::1]", "localhost"})
"""The names that every server on this machine has."""

_NAME = re.compile(r"(?:(https?)://)?([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])")


class HostNames:
    """Allowed values of the header `Host`, without ports: a tunnel changes the port."""

    def __init__(self, names: Iterable[str] = (), *, scheme: str = "http") -> None:
        self._schemes: dict[str, set[str]] = {name: {scheme} for name in LOOPBACK_NAMES}
        # `https://NAME` is for a proxy that adds TLS: the server itself has another scheme.
        for value in names:
            explicit_scheme, name = check_name(value)
            self._schemes.setdefault(name, set()).add(explicit_scheme or scheme)

    def origins(self, host: str) -> list[str]:
        """Returns the origins of pages under a lower-case `Host`; none if the name is not allowed."""
        return [f"{scheme}://{host}" for scheme in sorted(self._schemes.get(_name_of(host), ()))]


def check_name(value: str) -> tuple[str, str]:
    """Returns scheme (or "") and name of a host, in lower case; raises `ValueError` for anything else."""
    match = _NAME.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is not the name of a host, such as train.example or https://train.example")
    return (match[1] or "").lower(), match[2].lower()


def _name_of(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def names_of_address(address: str) -> list[str]:
    """Returns the host name for a server that listens on an address; none for all addresses of a machine."""
    if address in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return []
    name = f"[{address}]" if ":" in address and not address.startswith("[") else address
    return [name] if _NAME.fullmatch(name) else []
