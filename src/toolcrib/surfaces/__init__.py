"""Where callers meet the operations: each surface translates its protocol, once, and decides nothing."""
