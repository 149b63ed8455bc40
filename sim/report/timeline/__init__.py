"""The schedule timeline as a picture: shapes, rows, panels and the page. Knows only SVG."""
