"""Collective algorithms as transfers of payload fractions; rings are closed forms in sim/network so far."""
