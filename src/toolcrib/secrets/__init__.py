"""Seals what Toolcrib stores secretly, and keeps the key for it."""
