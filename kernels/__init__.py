"""What one GPU executes: cost models of its kernels. Knows no timeline."""
