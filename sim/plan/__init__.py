"""The layouts of a scenario: which there are, how long each takes at least, and which is the best."""
