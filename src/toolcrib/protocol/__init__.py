"""The operations as tools that a model can call, the rules it is told, and the way from a call to its operation."""
