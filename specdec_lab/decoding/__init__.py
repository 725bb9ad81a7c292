"""The decoding room: one loop, its target, and the law it keeps; it knows no proposer by name."""
