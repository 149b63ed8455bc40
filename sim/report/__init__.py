"""Views of a result: tables, JSON, timeline picture, trace, span files, comparison. Knows no clock."""
