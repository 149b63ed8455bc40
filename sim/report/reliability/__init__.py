"""A study of faults for people and for programs: tables, JSON, event log, pictures, a page."""
