"""Views of plans, sweeps and sensitivities: tables, JSON, rows, pictures, scenario files."""
