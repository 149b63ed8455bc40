"""What communication costs on the cluster's links, and how running communications share them."""
