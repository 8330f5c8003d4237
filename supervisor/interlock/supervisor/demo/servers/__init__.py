"""Small servers that behave badly; executed, never imported."""
