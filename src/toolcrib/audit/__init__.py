"""The audit: what is recorded about operations, where it is stored, and what is left out of it."""
