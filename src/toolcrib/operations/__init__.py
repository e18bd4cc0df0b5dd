"""The operations of the discovery protocol over a view of the catalog: list, search, expand and call."""
