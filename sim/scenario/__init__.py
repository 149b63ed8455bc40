"""The scenario file: its language, its checks, its errors. Knows no kernels, no collectives and no clock."""
