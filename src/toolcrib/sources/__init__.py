"""Sources: where tools come from and where calls go. A source does not know the catalog or the policy."""
