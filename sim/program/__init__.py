"""Programs as data: what each rank class will do, written, read and checked before any time passes."""
