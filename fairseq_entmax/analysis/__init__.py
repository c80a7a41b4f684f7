"""What trained heads do, read from checkpoints and from training's records."""
