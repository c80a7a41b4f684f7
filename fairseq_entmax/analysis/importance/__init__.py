"""How important heads are: relevance that is propagated, and the gradient of the loss."""
