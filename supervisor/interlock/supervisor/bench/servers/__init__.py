"""Small servers to measure against; executed, never imported."""
