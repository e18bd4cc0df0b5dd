"""Contract checks and fakes for whoever writes a source, a store or a surface; importable without pytest."""
