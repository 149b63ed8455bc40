"""Parts of the schedule timeline: shapes, colours, rows and panels. Knows no file formats but SVG."""
