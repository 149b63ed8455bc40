"""The local web page: the answers of the commands in a browser, on this machine alone.

Knows HTTP, its workers and what a document of the page may say. Does not know how any answer is found. Read
serve.py first, then app.py (endpoints) and tasks.py (what each asks a worker).

- who may ask what: guard.py, requests.py, documents.py (no document names a file);
- work: workers.py, worker.py, preload.py (what a worker has loaded), tasks.py, replies.py;
- what the page shows: first_scenario.py, catalogue.py, fields.py, schedule.py, points.py (layouts of a plan).
"""
