"""Views of pipeline schedules that are timed by themselves: pictures, tables and the page of all schedules.

Read timed.py first (when each action runs). One schedule: rows.py, lanes.py, picture.py (SVG), text.py
(terminal), tables.py, document.py (JSON). All of them: compare.py, compare_table.py, compare_picture.py, and
gallery.py (the page) with texts.py.
"""
