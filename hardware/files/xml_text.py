"""XML (GraphML) checked before a library builds a tree of it: no entities, no great depth.

Knows XML. Does not know what its elements mean.
"""

from __future__ import annotations

from pathlib import Path

from .errors import FileError

DEPTH = 64
ELEMENTS = 2_000_000


def check_xml(content: bytes, file: str | Path) -> None:
    """FileError where ``content`` is not XML, declares entities or a document type, or is nested too deep.

    Entities that hold entities expand a kilobyte to gigabytes; no format that is read here needs them.
    """
    from xml.parsers import expat

    parser = expat.ParserCreate()
    depth = elements = 0

    def refuse(reason: str) -> FileError:
        line, column = parser.CurrentLineNumber, parser.CurrentColumnNumber + 1
        return FileError(file, reason, line=line, column=column)

    def start(_name: str, _attributes: object) -> None:
        nonlocal depth, elements
        depth, elements = depth + 1, elements + 1
        if depth > DEPTH:
            raise refuse(f"is nested more than {DEPTH} levels deep here")
        if elements > ELEMENTS:
            raise refuse(f"has more than {ELEMENTS:,} elements, the most that is read of it")

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def doctype(*_: object) -> None:
        raise refuse("declares a document type, which may define entities; leave the declaration out")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = f"not valid XML: {expat.ErrorString(error.code)}"
        raise FileError(file, reason, line=error.lineno, column=error.offset + 1) from None
    except (ValueError, LookupError) as error:  # an encoding that Python does not have
        if isinstance(error, FileError):
            raise
        raise FileError(file, f"not valid XML: {error}") from None
