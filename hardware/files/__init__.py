"""Files of users: how they are opened, how far they are trusted, how they are written.

Every file that a user names is read and written by these functions alone (a test walks the source
for others). Knows files, YAML, JSON, gzip, SQLite and XML as such; does not know what any file means.

- reading: reading.py (the one way to open a file), packed.py (gzip), archives.py, several.py (many files,
  some of which cannot be used);
- formats: yaml_text.py, json_text.py, xml_text.py, csv_rows.py, database.py (SQLite), shipped_yaml.py;
- writing: writing.py, scope.py (no input is overwritten); errors: errors.py.
"""

from __future__ import annotations

from .archives import is_archive, members, read_members, read_opened
from .csv_rows import append_row
from .database import open_database
from .errors import FileError, OverwriteError, YamlError, size_text
from .json_text import TRACES, JsonLimits, load_json
from .packed import unpacked
from .reading import decoded, read_bytes, read_text, require_file
from .scope import note_output, one_command, shipped_files_only
from .several import Refusal, read_each, refusals_text
from .writing import append_text, make_folder_of, write_bytes, write_text, written
from .xml_text import check_xml
from .yaml_text import TABLES, YamlLimits, compose_yaml, load_yaml, plain, scalar_value

__all__ = [
    "TABLES",
    "TRACES",
    "FileError",
    "JsonLimits",
    "OverwriteError",
    "Refusal",
    "YamlError",
    "YamlLimits",
    "append_row",
    "append_text",
    "check_xml",
    "compose_yaml",
    "decoded",
    "is_archive",
    "load_json",
    "load_yaml",
    "make_folder_of",
    "members",
    "note_output",
    "one_command",
    "open_database",
    "plain",
    "read_bytes",
    "read_each",
    "read_members",
    "read_opened",
    "read_text",
    "refusals_text",
    "require_file",
    "scalar_value",
    "shipped_files_only",
    "size_text",
    "unpacked",
    "write_bytes",
    "write_text",
    "written",
]
