"""Kernels in C for a CPU, compiled on first use."""
