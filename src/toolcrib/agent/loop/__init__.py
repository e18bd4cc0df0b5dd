"""The loop that evaluates a prompt: it sends requests, runs the tools that the model calls, and opens sections."""
