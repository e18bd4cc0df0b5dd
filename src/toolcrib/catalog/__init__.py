"""What is known, as one immutable state: every tool, where it stands, how it is found; and who may see what of it."""
