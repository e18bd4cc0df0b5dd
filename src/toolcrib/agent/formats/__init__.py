"""Conversations in the forms that vendors speak them, as plain dictionaries; no SDK is imported here."""
