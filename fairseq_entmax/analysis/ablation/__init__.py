"""What a model loses without its heads."""
