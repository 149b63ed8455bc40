"""What communication costs on the cluster's links, and how running communications share them.

Read collectives.py first. By subject:

- which algorithm runs: selection.py, and nccl/ (NCCL's own choice);
- what algorithms cost: algorithms.py (with logs), unlogged_algorithms.py (without), token_exchange.py
  (experts), curve.py, chunks.py, checks.py (checked calls), measured.py (the job's own bandwidth);
- where a group is: group_placement.py, place.py, patterns.py (who sends to whom), paths.py (links of the
  fabric);
- sharing links: transfer.py, sharing.py (max-min), filling.py (the same over arrays).
"""
