"""One transformer layer as kernels and collectives, at one rank's local shape."""
