"""An editor that speaks the Agent Client Protocol, as a source of tools."""
