"""The surfaces, which translate between one protocol each and the operations. Surfaces make no decisions."""
