"""Pipeline schedules by themselves, without a model or a cluster: figures, tables, pictures, a gallery."""
