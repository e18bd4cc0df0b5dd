"""The record of operations: what is written, where, and what is left out of it."""
