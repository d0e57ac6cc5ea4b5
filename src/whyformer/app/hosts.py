"""The host names of the page: a foreign one means that another site sent the browser here."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERY_ADDRESS = ("0.0.0.0", "::", "")
SHARE_LINKS = "*.gradio.live"


@dataclass(frozen=True)
class Hosts:
    """Which Host and Origin headers are accepted.

    Attributes:
        names: Names of the machine on which the page listens.
        patterns: Names of proxies in front of the page; `*.example.org` covers its subdomains.
        takes_addresses: Whether any IP address is accepted, since no other site can make a browser send one.
    """

    names: frozenset[str]
    patterns: tuple[str, ...] = ()
    takes_addresses: bool = False

    def accept(self, host: str | None) -> bool:
        """Whether a Host header names this page."""
        name = _name(f"//{host or ''}")
        if name is None:
            return False
        return name in self.names or self._is_listed(name) or (self.takes_addresses and _is_address(name))

    def accept_origin(self, origin: str, host: str | None) -> bool:
        """Whether an Origin header is the page's own: the Host header, or a proxy's name."""
        name = _name(origin)
        return name is not None and (urlsplit(origin).netloc.lower() == (host or "").lower() or self._is_listed(name))

    def _is_listed(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)


def page_hosts(host: str | None, others: Sequence[str] = (), *, share: bool = False) -> Hosts:
    """Host names a page on this host accepts, including its public ones."""
    patterns = (*(name.lower() for name in others), *[SHARE_LINKS] * share)
    if host not in EVERY_ADDRESS:
        return Hosts(frozenset((*LOOPBACK, (host or LOOPBACK[0]).lower())), patterns)
    own = socket.gethostname().lower()
    return Hosts(frozenset((*LOOPBACK, own, f"{own}.local")), patterns, takes_addresses=True)


def _name(url: str) -> str | None:
    """The host of a URL in lower case; None without one."""
    try:
        return urlsplit(url).hostname or None
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False
