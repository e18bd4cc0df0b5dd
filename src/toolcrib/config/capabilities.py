"""Reads `toolcrib.capabilities`: what tools may need from the system, and how to check for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.capability_checks import (
    AddressAccepts,
    Checker,
    PackageImportable,
    PathExists,
    ProgramOnPath,
    VariableSet,
)
from toolcrib.config.settings import Settings
from toolcrib.core.errors import InvalidConfig

CAPABILITY_SETTINGS: Mapping[str, str] = {
    "program": "Available if a program with this name is on the PATH.",
    "env": "Available if this environment variable is set and not empty.",
    "path": "Available if this file or folder exists; `~` is the home folder.",
    "address": 'Available if this `"host:port"` accepts connections.',
    "package": "Available if this Python package can be imported.",
    "remedy": "What to do if it is missing, in sentences that models and people read.",
    "lifetime_s": "Seconds until the next check after it was found (60).",
    "missing_lifetime_s": "Seconds until the next check after it was missing (5).",
    "timeout_s": "Seconds to wait for an answer from an address before it counts as missing (5).",
}
"""Every key of one capability."""

_QUICK: Mapping[str, Callable[[str], Checker]] = {
    "program": ProgramOnPath,
    "env": VariableSet,
    "path": PathExists,
    "package": PackageImportable,
}

_KINDS = (*_QUICK, "address")


def read_capabilities(settings: Settings) -> tuple[Capability, ...]:
    """Read the capabilities below `toolcrib.capabilities`, in the file's order.

    Raises:
        InvalidConfig: a capability is invalid.
    """
    settings.only(settings)
    return tuple(_read(name, settings.settings(name)) for name in settings)


def _read(name: str, here: Settings) -> Capability:
    here.only(CAPABILITY_SETTINGS)
    default = Capability(name, _checker(here))
    return Capability(
        name,
        default.check,
        here.text("remedy"),
        here.seconds("lifetime_s", default.lifetime_s),
        here.seconds("missing_lifetime_s", default.missing_lifetime_s),
        here.seconds("timeout_s", default.timeout_s),
    )


def _checker(here: Settings) -> Checker:
    kinds = [key for key in _KINDS if here.text(key).strip()]
    if len(kinds) != 1:
        raise InvalidConfig(f"{here.path}: {here.where}: needs exactly one of {', '.join(_KINDS)}")
    (kind,) = kinds
    if kind == "address":
        return _address(here)
    return _QUICK[kind](here.text(kind))


def _address(here: Settings) -> AddressAccepts:
    host, _, port = here.text("address").rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and 0 < int(port) < 65_536):
        raise here.wrong("address", 'must be a host and a port, for example "localhost:5432"')
    return AddressAccepts(host.removeprefix("[").removesuffix("]"), int(port))
