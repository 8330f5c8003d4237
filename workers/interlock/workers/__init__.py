"""The programs that run as isolated worker processes, one folder for each kind."""
