"""Finds tools by words, by meaning, and by past calls."""
