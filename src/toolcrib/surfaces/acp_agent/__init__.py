"""The agent for editors that speak the Agent Client Protocol (ACP). Only this package imports the ACP SDK."""
