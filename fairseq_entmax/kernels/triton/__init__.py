"""Kernels in Triton for a GPU. Importing a module of this package imports Triton."""
