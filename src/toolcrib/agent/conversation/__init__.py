"""A conversation with a model as values: its messages, its events, and the state that results from them."""
