"""Finding tools by words, meaning and past calls."""
