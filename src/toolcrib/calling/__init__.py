"""The one way a tool is run, and a prompt or resource fetched; nothing else asks a source for either."""

from toolcrib.calling.approving import Approvals, Approver
from toolcrib.calling.fetching import complete, get_prompt, read_resource, watch_resource
from toolcrib.calling.limits import CallLimits
from toolcrib.calling.runner import Runner

__all__ = ["Approvals", "Approver", "CallLimits", "Runner", "complete", "get_prompt", "read_resource", "watch_resource"]
