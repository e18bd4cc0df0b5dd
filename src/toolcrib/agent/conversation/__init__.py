"""A conversation with a model as values: its messages, what happened in it, and what that comes to."""
