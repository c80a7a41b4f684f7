"""The models under analysis: loading them, recording their attention, and scaling their heads."""
