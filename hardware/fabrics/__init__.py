"""Network shapes, one module each, found by the fabric's name."""
