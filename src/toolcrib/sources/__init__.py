"""Where tools come from and where calls go. A source knows neither catalog nor policy."""
