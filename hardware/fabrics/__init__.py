"""Network shapes, one module each, found by the fabric's name.

- shapes: nvlink.py (one domain, no network), rail_optimized.py and fat_tree.py (by clos.py, which counts
  switches, and tiers.py, which numbers cables), dragonfly.py, torus.py;
- what all shapes share: network.py (what a shape can do), links.py, link_kinds.py, inputs.py (what it reads).
"""
