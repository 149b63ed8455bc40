"""Bounded replay: a step with many slow parts, between two bounds, from few replicas of the pipeline.

Read bounds.py first, which says why the bounds hold. conditions.py says when. Then by subject:

- the replicas: replicas.py, choose_replicas.py, programs.py, collectives_apart.py;
- max-plus passes over a step's graph: graph.py, layer_edges.py, stage_messages.py, dependencies.py,
  max_plus.py, passes.py, traffic.py, gains.py (what mending a part saves);
- what contention may change: extremes.py, op_costs.py, messages_in_flight.py, sm_holding.py, member_slack.py.
"""
