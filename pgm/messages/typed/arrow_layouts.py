"""Layouts of untrusted Arrow columns: which of them can be converted safely, and how large they become.

Dictionaries and views let a few octets stand for many: each value of them becomes a copy. Arrow 26 converts a list of list
views into an array whose offsets lead outside, so those layouts are refused.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_VIEW_WORDS = 4  # of 32 bits for each text of a view; the first is its length


def is_convertible(kind: pa.DataType) -> bool:
    """Return whether columns of a type, with all its parts, can be converted."""
    if pa.types.is_dictionary(kind):
        return is_convertible(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return is_convertible(kind.value_type)
    if pa.types.is_map(kind):
        return is_convertible(kind.key_type) and is_convertible(kind.item_type)
    if pa.types.is_struct(kind):
        return all(is_convertible(kind.field(place).type) for place in range(kind.num_fields))
    return not pa.types.is_nested(kind) and not isinstance(kind, pa.BaseExtensionType)


def unfolded_octets(array: pa.Array) -> int:
    """Return the octets of copies that the values of dictionaries and views in a convertible array become."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        values = array.dictionary
        if pa.types.is_nested(kind.value_type) or _is_view(kind.value_type):
            each: int = values.nbytes + unfolded_octets(values)
            return len(array) * each
        sizes = pc.binary_length(values) if _has_length(kind.value_type) else None
        return 0 if sizes is None else _sum(sizes.take(array.indices))
    if _is_view(kind):
        words = array.buffers()[1]
        if words is None:
            return 0
        first = array.offset * _VIEW_WORDS
        sizes = np.frombuffer(words, np.int32)[first : first + len(array) * _VIEW_WORDS : _VIEW_WORDS]
        return int(sizes[array.is_valid().to_numpy(zero_copy_only=False)].sum(dtype=np.int64))
    if pa.types.is_map(kind):
        return unfolded_octets(array.keys) + unfolded_octets(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return unfolded_octets(array.flatten())
    if pa.types.is_struct(kind):
        return sum(unfolded_octets(part) for part in array.flatten())
    return 0


def _sum(sizes: pa.Array) -> int:
    return pc.sum(sizes.cast(pa.int64())).as_py() or 0


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _has_length(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
