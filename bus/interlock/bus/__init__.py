"""The message bus: what other programs import to talk to a running Interlock."""
