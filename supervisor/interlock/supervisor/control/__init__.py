"""The control plane: who may speak for which worker, how fast, and how much."""
