"""The schedule timeline as a picture: shapes, colours, rows, panels and the page. Knows only SVG."""
