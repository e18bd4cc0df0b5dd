"""A source whose tools come from an editor that speaks the Agent Client Protocol."""

from toolcrib.sources.acp.descriptors import ToolCatalog, ToolDescriptor
from toolcrib.sources.acp.port import ClientOffer, ClientPort

__all__ = ["ClientOffer", "ClientPort", "ToolCatalog", "ToolDescriptor"]
