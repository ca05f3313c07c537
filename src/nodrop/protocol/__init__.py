"""Types of what nodrop-node and its controller say to each other."""
