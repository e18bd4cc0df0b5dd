"""Tools that are declared as data: a command line or an HTTP endpoint, with a schema of what goes into it."""
