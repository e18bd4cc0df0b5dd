"""The one way a tool is run; nothing else calls a source's `call_tool`."""

from toolcrib.calling.caller import call_tool

__all__ = ["call_tool"]
