"""What runs and what joins it: GPUs, hosts, networks, and the cluster that they make.

Knows no language model, no schedule and no time. Figures lie in the YAML files beside the modules, each with
its source. Read cluster.py first. By subject:

- the catalogues: catalogue.py, gpu.py, gpus.py, node.py, interconnect.py, published.py (clusters in print),
  prices.py, host_memory.py, host_power.py; cited.py (marks in their sources);
- a user's own: own_gpu.py, own_node.py, own_interconnect.py, carried.py (figures taken from relatives);
- the network: fabric.py (its shape, by fabrics/), placement.py, topology.py, host_links.py, routes.py,
  link.py; as a graph: graph.py, graph_file.py, custom_topology.py;
- what a GPU sustains: profile.py, provenance.py, limited_clock.py, step_factors.py, deviations.py;
  calibrated/ reads files;
- collectives: collectives.py (constants), collective_curve.py, collective_kinds.py;
- fields that users write: fields.py, quantities.py (units), limits.py, explain.py (errors), shown.py; files/
  opens files.
"""
