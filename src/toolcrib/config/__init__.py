"""Reads `mcp.json`: the servers, and Toolcrib's own settings in the same file."""

from toolcrib.config.config_file import SERVER_KEYS, parse_config, read_config
from toolcrib.config.configuration import DEFAULT_ROOM, OUR_KEY, Config, Room
from toolcrib.config.server_entries import ServerConfig

__all__ = [
    "DEFAULT_ROOM",
    "OUR_KEY",
    "SERVER_KEYS",
    "Config",
    "Room",
    "ServerConfig",
    "parse_config",
    "read_config",
]
