"""The one way a tool is run, and a prompt or resource fetched; nothing else asks a source for either."""

from toolcrib.calling.caller import call_tool
from toolcrib.calling.fetching import complete, get_prompt, read_resource, watch_resource
from toolcrib.calling.limits import CallLimits

__all__ = ["CallLimits", "call_tool", "complete", "get_prompt", "read_resource", "watch_resource"]
