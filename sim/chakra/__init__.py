"""MLCommons Chakra's execution traces: written for a scenario, checked, and replayed, ours or anyone's."""
