"""Values and rules without I/O. No module here imports from a package above `core`."""
