"""The catalog: an immutable state of all tools, their categories and the search index, and what each principal sees."""
