"""Adapters, one for each vendor; a vendor's SDK is imported when its adapter is made, and nowhere else."""
