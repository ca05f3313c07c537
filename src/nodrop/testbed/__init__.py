"""A trial's ground: SUTs, generators, setups, labs, images and the hosts below them."""
