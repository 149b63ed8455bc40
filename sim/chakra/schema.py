"""Chakra's messages, as classes of the protobuf package, made from a table of their fields.

Knows the schema's names and numbers and nothing else. The package ``protobuf`` is an extra (``chakra``).

Source: mlcommons/chakra, schema/protobuf/et_def.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

PACKAGE = "ChakraProtoMsg"
SCALARS = (
    ("double", "TYPE_DOUBLE"),
    ("float", "TYPE_FLOAT"),
    ("int32", "TYPE_INT32"),
    ("int64", "TYPE_INT64"),
    ("uint32", "TYPE_UINT32"),
    ("uint64", "TYPE_UINT64"),
    ("sint32", "TYPE_SINT32"),
    ("sint64", "TYPE_SINT64"),
    ("fixed32", "TYPE_FIXED32"),
    ("fixed64", "TYPE_FIXED64"),
    ("sfixed32", "TYPE_SFIXED32"),
    ("sfixed64", "TYPE_SFIXED64"),
    ("bool", "TYPE_BOOL"),
    ("string", "TYPE_STRING"),
    ("bytes", "TYPE_BYTES"),
)
"""Types of an attribute's value, in order: the first is field 3, a list of it field 4, the next 5, ..."""

_NODE_TYPES = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
_FIELDS: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "GlobalMetadata": (("version", 1, "string", False), ("attr", 2, "AttributeProto", True)),
    "IOInfo": (("values", 1, "string", False), ("shapes", 2, "string", False), ("types", 3, "string", False)),
    "Node": (
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "NodeType", False),
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("inputs", 8, "IOInfo", False),
        ("outputs", 9, "IOInfo", False),
        ("attr", 10, "AttributeProto", True),
    ),
}
"""By message, its fields: name, number, type, and whether it is repeated."""


@dataclass(frozen=True)
class ChakraMessages:
    """The classes of the messages that files hold."""

    metadata: Any
    node: Any


@cache
def messages() -> ChakraMessages:
    """The classes. ValueError naming the extra where protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise ValueError(
            "execution traces of Chakra need the package protobuf: pip install 'stepsim[chakra]'"
        ) from None
    file = descriptor_pb2.FileDescriptorProto(name="stepsim/chakra.proto", package=PACKAGE, syntax="proto3")
    kinds = file.enum_type.add(name="NodeType")
    for number, name in enumerate(_NODE_TYPES):
        kinds.value.add(name=name, number=number)
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, *field)
    _add_attribute(file)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)

    def made(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))

    return ChakraMessages(metadata=made("GlobalMetadata"), node=made("Node"))


def _list_name(kind: str) -> str:
    return f"{kind.capitalize()}List"


def _add_field(message: Any, name: str, number: int, kind: str, repeated: bool) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    field = message.field.add(name=name, number=number)
    field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    scalar = dict(SCALARS).get(kind)
    if scalar is not None:
        field.type = getattr(FieldDescriptorProto, scalar)
    else:
        enum = kind == "NodeType"
        field.type = FieldDescriptorProto.TYPE_ENUM if enum else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


def _add_attribute(file: Any) -> None:
    """An attribute: a name, and one value of any scalar type, or a list of one."""
    for kind, _ in SCALARS:
        _add_field(file.message_type.add(name=_list_name(kind)), "values", 1, kind, True)
    message = file.message_type.add(name="AttributeProto")
    _add_field(message, "name", 1, "string", False)
    _add_field(message, "doc_string", 2, "string", False)
    message.oneof_decl.add(name="value")
    for number, (kind, _) in enumerate(SCALARS):
        _add_field(message, f"{kind}_val", 3 + 2 * number, kind, False)
        _add_field(message, f"{kind}_list", 4 + 2 * number, _list_name(kind), False)
    for field in message.field[2:]:
        field.oneof_index = 0
