"""What a collective algorithm is made of: transfers of payload pieces between ranks and switches.

Read algorithm.py first, then plan.py and collective.py.

- who takes part: group.py; what moves: transfer.py; what a cost needs to know of it: loads.py;
- parts that several algorithms share: rings.py, trees.py, in_network.py (SHARP).
"""
