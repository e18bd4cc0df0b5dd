"""The `Toolcrib` class, which connects sources, catalog and operations and follows the configuration."""
