"""All capabilities of all sources, and what a turn is offered."""
