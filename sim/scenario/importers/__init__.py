"""Files of other frameworks as scenarios: one importer a file, found by its name, and the way back.

A module that ends in ``IMPORTER = Importer(...)`` is an importer, one that ends in ``EXPORTER =
Exporter(...)`` writes a framework's own file; the registry finds both (registry.py). The other modules are
what importers share: settings with their places, shell scripts that are read and never executed, Megatron's
names.
"""
