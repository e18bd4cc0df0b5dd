"""A fake ACP client and what it is made of."""
