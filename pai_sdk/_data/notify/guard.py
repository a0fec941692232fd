"""Addresses that a service refuses as targets: those of its own machine and of private networks (SSRF)."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pai_sdk._data.notify.refusals import NotDeliveredError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNIQUE_LOCAL = ipaddress.IPv6Network("fc00::/7")
_PRIVATE = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))


@dataclass(frozen=True)
class AddressGuard:
    """Decides which addresses may be connected to: public ones, and those that are allowed.

    Attributes:
        allowed_networks: further networks.
        allowed_hosts: names whose addresses are not checked.
        allows_private: also this machine and private networks, but not link-local addresses, where clouds publish
            the credentials of a machine.
    """

    allowed_networks: Sequence[Network] = ()
    allowed_hosts: frozenset[str] = frozenset()
    allows_private: bool = False
    allows_all: bool = False  # for a client, which sends what its own user has asked for

    @classmethod
    def of(cls, allowed: Sequence[str], *, allows_private: bool = False) -> AddressGuard:
        """Returns the guard that allows these networks (`10.1.0.0/16`), addresses and names of hosts."""
        networks, hosts = [], []
        for entry in allowed:
            try:
                networks.append(ipaddress.ip_network(entry.strip(), strict=False))
            except ValueError:
                hosts.append(entry.strip().lower().rstrip("."))
        return cls(tuple(networks), frozenset(hosts), allows_private)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AddressGuard:
        """Returns the guard that `to_json` describes."""
        networks = tuple(ipaddress.ip_network(network) for network in fields["networks"])
        return cls(networks, frozenset(fields["hosts"]), fields["allows_private"], fields["allows_all"])

    def to_json(self) -> dict[str, Any]:
        """Returns the guard for another process."""
        return {
            "networks": [str(network) for network in self.allowed_networks],
            "hosts": sorted(self.allowed_hosts),
            "allows_private": self.allows_private,
            "allows_all": self.allows_all,
        }

    def with_hosts_resolved(self, hosts: Iterable[str] = ()) -> AddressGuard:
        """Returns a guard that allows the addresses of the allowed hosts, and of further ones."""
        networks = list(self.allowed_networks)
        for host in {*self.allowed_hosts, *hosts}:
            with suppress(OSError):
                entries = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
                networks += [ipaddress.ip_network(str(target[0]).partition("%")[0]) for *_, target in entries]
        return replace(self, allowed_networks=tuple(networks))

    def check(self, host: str, address: str) -> None:
        """Raises NotDeliveredError if the address of a host must not be connected to."""
        if self.allows_all or host.lower().rstrip(".") in self.allowed_hosts or self.is_allowed(address):
            return
        raise NotDeliveredError(
            f"{host} has the address {address}, which is not a public one; "
            "the operator of the service can allow it: pai-sdk serve --notify-allow",
            code="AddressNotAllowed",
            is_transient=False,
        )

    def is_allowed(self, text: str) -> bool:
        """Returns True for an address that may be connected to."""
        try:
            addresses = list(_embedded_addresses(ipaddress.ip_address(text.partition("%")[0])))
        except ValueError:
            return False
        return all(self._is_allowed(address) for address in addresses)

    def _is_allowed(self, address: Address) -> bool:
        if any(address.version == network.version and address in network for network in self.allowed_networks):
            return True
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            return False
        return address.is_global or (self.allows_private and _is_private(address))

    def resolve(self, host: str, port: int) -> list[tuple[int, str]]:
        """Returns families and addresses of a host, all of them checked; OSError if it has none."""
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [(int(family), str(target[0])) for family, _, _, _, target in entries]
        for _, address in addresses:
            # All of them: a name with a public and a private address is an attack, or a mistake.
            self.check(host, address)
        return addresses


def _is_private(address: Address) -> bool:
    if address.is_loopback:
        return True
    if isinstance(address, ipaddress.IPv6Address):
        return address in _UNIQUE_LOCAL
    return any(address in network for network in _PRIVATE)


def _embedded_addresses(address: Address) -> Iterator[Address]:
    """Yields the address that is connected to: of an IPv6 address with an IPv4 address in it, that one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            yield address.ipv4_mapped
            return
        embedded = address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _NAT64:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            yield embedded
            return
    yield address


UNGUARDED = AddressGuard(allows_all=True)
