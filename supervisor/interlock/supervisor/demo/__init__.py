"""The demonstration that needs no configuration."""
