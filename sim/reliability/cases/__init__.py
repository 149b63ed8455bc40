"""Closed forms and published cases that campaigns are held against, and their page (docs/reliability.md)."""
