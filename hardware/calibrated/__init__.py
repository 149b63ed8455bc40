"""Profile files, shipped or a user's own: what may stand in them, their reader, and one laid over another."""
