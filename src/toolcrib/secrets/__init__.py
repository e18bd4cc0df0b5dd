"""Encrypts ("seals") the secrets that Toolcrib stores, and keeps the key."""
