"""Interlock's own tools: the time, notes, and the search for tools that a turn lacks."""
