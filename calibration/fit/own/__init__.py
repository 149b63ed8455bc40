"""A profile of a user's own: fitted on what was measured there, written with how sure it is."""
