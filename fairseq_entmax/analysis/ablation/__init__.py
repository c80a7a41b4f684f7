"""Ablation: what a model loses when heads are removed."""
