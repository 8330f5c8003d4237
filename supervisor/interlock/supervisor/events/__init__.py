"""The event sequence, turn logs and the journal."""
