"""What runs and what joins it: GPUs, hosts, networks, and the cluster that they make.

Knows no language model, no schedule and no time. Figures lie in the YAML files beside the modules,
each with its source.
"""
