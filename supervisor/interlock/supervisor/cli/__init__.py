"""The commands of interlock."""
