"""What the transformer is: its shape, its catalogue of known models, its sizes.

Knows no cluster, no layout and no time.
"""
