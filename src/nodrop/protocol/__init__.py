"""What nodrop-node and its controller say to each other, as types."""
