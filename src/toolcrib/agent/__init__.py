"""Conversations with models: prompts, their sections, and the loop that evaluates them."""
