"""The pure state machine of a worker and its restart policy."""
