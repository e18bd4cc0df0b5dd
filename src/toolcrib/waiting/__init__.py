"""Stores the calls that wait until a person approves them."""

from toolcrib.waiting.waiting_store import WaitingItem, WaitingStore

__all__ = ["WaitingItem", "WaitingStore"]
