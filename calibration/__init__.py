"""From measurements to profiles: readers of measured kernels, fits, and the writer of profile files."""
