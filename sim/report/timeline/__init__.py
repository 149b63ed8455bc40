"""The schedule timeline as a picture: shapes, rows, panels and the page. Knows only SVG.

Read picture.py first, then page.py and panel.py.

- what is drawn: boxes.py, made by tracks.py (rank classes) and streams.py (communication), intervals.py;
- what explains it: legend.py, clock.py (the unit of times).
"""
