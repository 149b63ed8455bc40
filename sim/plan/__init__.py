"""Which layout: all legal ones as arrays, screened by memory and by a bound, the best of them replayed."""
