"""What each framework implies for a scenario, one YAML file a framework, each behaviour with its source.

A file has a ``title``, the ``presets`` that it is about and its ``rules`` (software/rules.py says how they
are written); a rule with ``presets`` of its own is about these alone. With ``basis`` the rules of another
file hold too, as they are for the preset ``as_of``, on topics that the file says nothing about.
"""
