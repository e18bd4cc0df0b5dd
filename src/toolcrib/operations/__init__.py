"""What a model is shown of the catalog, and when: list, search and expand, over a view."""
