"""Values and laws: nothing in here does I/O or knows what lies above it."""
