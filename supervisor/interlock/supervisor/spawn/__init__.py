"""Starting, reaping and sweeping processes."""
