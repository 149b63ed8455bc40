"""What all readers of files of other programs share: checked values, tables, names of GPUs."""
