"""Which addresses this service may connect to; pure, except for the look-up of names.

A URL that somebody else chose must not reach what only this machine or its network can reach: its
own ports, a router, a cloud's metadata service with its credentials (OWASP API7, SSRF). So a name
is resolved here, each of its addresses is judged, and the connection is made to a judged address. A
second look-up could return another address (DNS rebinding).

Addresses are judged as the system would dial them: `2130706433`, `0x7f.1` and `127.1` are
127.0.0.1 to `getaddrinfo`, and an IPv6 address may hold an IPv4 address.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from cbp.errors import CbpError, OperatingError


class AddressRefusedError(CbpError, code="address_refused"):
    """The service may not send requests to this address."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(
            f"requests to {host!r} are refused: {why}; use an address that every machine on the "
            "Internet can reach, or name the host in CBP_OUTBOUND_HOSTS",
            host=host,
        )


class OutboundFailedError(OperatingError, code="outbound_failed"):
    """Another service did not answer, or its answer cannot be used."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host}: {why}", host=host)


Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], list[str]]
"""Returns the addresses of a host and port; raises `OSError` if there are none."""

_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254",  # AWS, Azure, Google, OpenStack
            "169.254.170.2",  # containers of AWS
            "fd00:ec2::254",  # AWS by IPv6
            "fd20:ce::254",  # Google by IPv6
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure's wire server; looks like any address of the Internet
            "192.0.0.192",  # Oracle
        ),
    )
)
"""Services of clouds that give credentials to any program on the machine."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")
_COMPATIBLE = ipaddress.ip_network("::/96")


def resolve_name(host: str, port: int) -> list[str]:
    """Return the addresses that the system would dial, in its order."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Decides which addresses may be reached.

    Attributes:
        hosts: Names, addresses and networks (`10.1.0.0/16`) that may be reached although they
            are not on the Internet. Metadata services of clouds stay refused.
        internal: Whether all internal addresses may be reached; for addresses set by the operator.
    """

    hosts: frozenset[str] = frozenset()
    internal: bool = False
    resolve: Resolve = field(default=resolve_name, repr=False)

    @classmethod
    def of(cls, hosts: Iterable[str], *, resolve: Resolve = resolve_name) -> AddressRules:
        """Return the rules for addresses chosen by users, with these exceptions."""
        return cls(frozenset(host.strip().lower().rstrip(".") for host in hosts), resolve=resolve)

    @classmethod
    def of_operator(cls) -> AddressRules:
        """Return the rules for addresses in the settings of the service."""
        return cls(internal=True)

    def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses to connect to, in order.

        A name with an allowed and a refused address is refused, since either might be used. Raises
        `AddressRefusedError`; `OutboundFailedError` if the name has no address.
        """
        name = host.lower().rstrip(".")
        try:
            found = self.resolve(name, port)
        except (OSError, UnicodeError) as error:
            raise OutboundFailedError(host, "the name cannot be resolved") from error
        for text in found:
            if why := self._problem(name, ipaddress.ip_address(text)):
                raise AddressRefusedError(host, why)
        return found

    def _problem(self, name: str, address: Address) -> str:
        """Return why an address is refused; `""` if it is not."""
        for inner in _inner(address):
            if inner in _METADATA or inner.is_link_local:
                return f"{inner} is a metadata service, or another link-local address"
            if inner.is_multicast or inner.is_unspecified:
                return f"{inner} is not the address of a single machine"
            if not (inner.is_global or self.internal or self._is_listed(name, inner)):
                return f"{inner} is an address of this machine or of a private network"
        return ""

    def _is_listed(self, name: str, address: Address) -> bool:
        return name in self.hosts or any(_is_in(address, entry) for entry in self.hosts)


def _inner(address: Address) -> list[Address]:
    """Return an address, and the IPv4 addresses that it leads to."""
    if isinstance(address, IPv4Address):
        return [address]
    inner: list[Address | None] = [address.ipv4_mapped, address.sixtofour]
    if address.teredo is not None:
        inner.append(address.teredo[1])
    if address in _NAT64 or address in _NAT64_LOCAL or _is_compatible(address):
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    actual = [one for one in inner if one is not None]
    # Another spelling of an IPv4 address is judged as that address.
    return actual if actual else [address]


def _is_compatible(address: IPv6Address) -> bool:
    return address in _COMPATIBLE and int(address) > 1


def _is_in(address: Address, entry: str) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:  # a name
        return False
