"""Runs tools, and fetches prompts and resources. No other package sends these requests to a source."""

from toolcrib.operations.calling.approver import Approvals, Approver
from toolcrib.operations.calling.fetching import complete, get_prompt, read_resource, watch_resource
from toolcrib.operations.calling.limits import CallLimits
from toolcrib.operations.calling.runner import Runner

__all__ = ["Approvals", "Approver", "CallLimits", "Runner", "complete", "get_prompt", "read_resource", "watch_resource"]
