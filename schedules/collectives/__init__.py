"""Collective algorithms as transfers of payload fractions. Rings and pairwise exchange are closed forms so far, in sim/network."""
