"""A fake ACP client and its parts."""
