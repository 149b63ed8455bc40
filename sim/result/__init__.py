"""What a simulated step is, as data: figures, memory, faults, and all of it as one document. No views."""
