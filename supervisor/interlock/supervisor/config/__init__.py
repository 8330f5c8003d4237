"""Reading, layering, trusting and checking configuration."""
