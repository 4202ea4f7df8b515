"""Where processes of this machine listen, as the kernel says it."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

__all__ = ["listening"]

_LISTENS = "0A"


def listening(processes: Iterable[int]) -> set[tuple[str, int]]:
    """Return the addresses and ports on which these processes accept connections by TCP or UDP."""
    inodes = {inode for pid in processes for inode in _sockets(pid)}
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and (fields[3] == _LISTENS or _is_open_udp(table, fields)):
                address, _, port = fields[1].partition(":")
                found.add((_address(address), int(port, 16)))
    return found


def _is_open_udp(table: str, fields: list[str]) -> bool:
    """Tell whether a socket takes what anybody sends: it is bound, and connected to nobody."""
    return table.startswith("udp") and fields[2].endswith(":0000")


def _sockets(pid: int) -> set[str]:
    found = set()
    try:
        handles = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return set()
    for handle in handles:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{handle}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def _address(text: str) -> str:
    """Return an address from the kernel's spelling: words of 32 bits in the machine's order."""
    words = [struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8)]
    data = b"".join(words)
    if len(data) == 4:
        return socket.inet_ntoa(data)
    address = ipaddress.IPv6Address(data)
    return str(address.ipv4_mapped or address)
