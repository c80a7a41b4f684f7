"""What is changed in fairseq, a file each: what breaks without it, and when it can be removed."""
