"""An editor that speaks the Agent Client Protocol, as a source of tools."""

from toolcrib.sources.acp.descriptors import ToolCatalog, ToolDescriptor
from toolcrib.sources.acp.port import ClientOffer, ClientPort

__all__ = ["ClientOffer", "ClientPort", "ToolCatalog", "ToolDescriptor"]
