"""The local web page: the answers of the commands in a browser, on this machine alone.

Knows HTTP, its workers and what a document of the page may say. Does not know how any answer is found.
"""
