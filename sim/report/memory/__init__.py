"""The memory of a step: its bill beside the textbook's formulas, as a table, a document and a picture."""
