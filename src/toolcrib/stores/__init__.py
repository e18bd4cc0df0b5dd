"""What must survive the end of a process, in embedded SQLite files."""
