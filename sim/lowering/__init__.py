"""Lowering: from a scenario to the programs of its rank classes, and their memory."""
