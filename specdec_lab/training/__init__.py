"""Training: the target's own generations, and the drafts that learn from them."""
