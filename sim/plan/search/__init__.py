"""The best layouts, proven: a best-first search with exact replays, its workers, journal and certificate."""
