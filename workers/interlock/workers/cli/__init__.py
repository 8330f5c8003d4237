"""The cli kind: a worker for each command-line tool that agents may run."""
