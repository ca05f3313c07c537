"""How much before it drops: what to try next, what it means, its words, page and command."""
