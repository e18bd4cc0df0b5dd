"""Signing in to servers: discovery, sign-ins, stored grants, and the tokens that requests carry."""
