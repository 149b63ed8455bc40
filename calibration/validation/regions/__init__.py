"""Errors of fits where a region of what was measured is left out of them: what intervals widen by."""
