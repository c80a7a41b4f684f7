"""What is changed in fairseq: for the sake of what, and what breaks without it."""
