"""What a client does with a model and its data."""
