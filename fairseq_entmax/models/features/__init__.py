"""The features of models, a file each."""
