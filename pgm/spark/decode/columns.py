"""Columns of a query that decodes values: those of the archive's rows, the fields of the values, and `decode_error`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

import attrs
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from pgm.messages.typed.fields import TypedField, ValueCodec, is_decodable
from pgm.spark.errors import BadOption

DECODE_ERROR = "decode_error"

# One column of a schema's text: a name, plain or between backticks, and everything up to a comma outside of brackets.
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*(?=[\s:])")
_TYPES = frozenset(
    [
        "array",
        "bigint",
        "binary",
        "boolean",
        "byte",
        "char",
        "character",
        "date",
        "dec",
        "decimal",
        "double",
        "float",
        "geography",
        "geometry",
        "int",
        "integer",
        "interval",
        "long",
        "map",
        "numeric",
        "real",
        "short",
        "smallint",
        "string",
        "struct",
        "time",
        "timestamp",
        "timestamp_ltz",
        "timestamp_ntz",
        "tinyint",
        "varchar",
        "variant",
        "void",
    ]
)
_TYPE = re.compile(r"\w*")
_OPENING, _CLOSING, _QUOTES = "<(", ">)", "'\"`"


@attrs.frozen
class ValueFields:
    """Options of decoding: codec, the fields of the values as text for Spark's parser, and the prefix of their columns."""

    codec: ValueCodec
    ddl: str | None = None
    prefix: str = ""


@attrs.frozen(eq=False)
class DecodedSchema:
    """Columns of a query in their order, and the fields of the values among them."""

    codec: ValueCodec
    schema: pa.Schema
    fields: tuple[TypedField, ...]
    columns: tuple[str, ...]  # of the fields

    @property
    def has_errors(self) -> bool:
        """Return whether the query has the column `decode_error`."""
        return DECODE_ERROR in self.schema.names


def schema_text(rows: StructType, reserved: Iterable[str], values: ValueFields) -> str:
    """Return the columns of rows, fields and errors as a text for Spark's parser. Raises `BadOption`."""
    if values.ddl is None:
        raise BadOption(
            "option decode needs the fields of the values",
            remedy='.option("decodeSchema", "symbol STRING, price DOUBLE"); pgm archive schema DIRECTORY prints them',
        )
    taken = {name.lower() for name in (*reserved, DECODE_ERROR)}
    columns = [f"`{field.name}` {field.dataType.simpleString()}" for field in rows.fields]
    for name, kind in ddl_fields(values.ddl):
        column = values.prefix + name
        if column.lower() in taken:
            raise BadOption(
                f"the values have a field {name}, and the rows have a column {column} already",
                remedy='put something before the names of all fields: .option("decodePrefix", "value_")',
            )
        taken.add(column.lower())
        columns.append(f"`{column.replace('`', '``')}` {kind}")
    return ", ".join((*columns, f"{DECODE_ERROR} string"))


def ddl_fields(ddl: str) -> Iterator[tuple[str, str]]:
    """Yield name and type of each column of a schema's text. Raises `BadOption`."""
    for part in _parts(ddl):
        match = _NAME.match(part)
        kind = part[match.end() :].lstrip(" :\t\n") if match is not None else ""
        if match is None or not kind:
            raise BadOption(
                f"{part.strip()!r} is no field of option decodeSchema",
                remedy='write name and type of each: "symbol STRING, price DOUBLE"',
            )
        name = (match[1] or match[2]).replace("``", "`")
        word = kind[: _TYPE.match(kind).end()].lower()  # type: ignore[union-attr]  # the pattern matches no letter, too
        if word not in _TYPES:
            meant = difflib.get_close_matches(word, sorted(_TYPES), n=1)
            raise BadOption(
                f"option decodeSchema: the field {name} has the type {kind!r}, which Spark has not",
                remedy=f"did you mean {meant[0].upper()}?" if meant else "choose one such as STRING, DOUBLE, BIGINT",
            )
        yield name, kind


def _parts(text: str) -> Iterator[str]:
    """Yield the parts between commas that are neither in brackets nor in quotes."""
    depth, quote, begin = 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        elif letter in _OPENING or letter in _CLOSING:
            depth += 1 if letter in _OPENING else -1
        elif letter == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def decoded_schema(
    schema: StructType, rows: StructType, values: ValueFields
) -> tuple[list[StructField], DecodedSchema]:
    """Return the columns of a schema that are those of rows, and the schema with the fields of the values.

    Raises `BadOption`.
    """
    known = {field.name: field.dataType for field in rows.fields} | {DECODE_ERROR: StringType()}
    of_values = [field for field in schema.fields if field.name not in known]
    spelled = {name.lower(): name for name in known}
    for field in schema.fields:
        name = spelled.get(field.name.lower())
        if name is not None and (name, known[name]) != (field.name, field.dataType):
            raise BadOption(
                f"the schema has a column {field.name} {field.dataType.simpleString()}, and the rows have "
                f"{name} {known[name].simpleString()} beside the values",
                remedy='if it is a field of the values: .option("decodePrefix", "value_"), and value_ before the name',
            )
    if not of_values:
        raise BadOption("the schema has no field of the values", remedy="name one, or omit the option decode")
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    fields = []
    for field in of_values:
        kind = arrow_schema.field(field.name).type
        if not field.nullable or not is_decodable(kind) or not field.name.startswith(values.prefix):
            raise BadOption(
                f"the column {field.name} {field.dataType.simpleString()} cannot be decoded",
                remedy="names begin with decodePrefix, columns may be null, and types are numbers, text, binary, times, "
                "and lists, structs and maps of them",
            )
        fields.append(TypedField.of(field.name.removeprefix(values.prefix), kind))
    found = DecodedSchema(values.codec, arrow_schema, tuple(fields), tuple(field.name for field in of_values))
    return [field for field in schema.fields if field.name in known and field.name != DECODE_ERROR], found
