"""What waits for a person: calls that need approval."""

from toolcrib.waiting.waiting_store import WaitingItem, WaitingStore

__all__ = ["WaitingItem", "WaitingStore"]
