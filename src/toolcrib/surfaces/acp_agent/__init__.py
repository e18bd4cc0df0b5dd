"""An agent for editors that speak the Agent Client Protocol; here alone its SDK is imported."""
