"""The worker that runs one agent's turns."""
