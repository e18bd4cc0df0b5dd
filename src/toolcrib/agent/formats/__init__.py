"""Conversations in the formats of vendors, as plain dictionaries. No vendor's SDK is imported here."""
