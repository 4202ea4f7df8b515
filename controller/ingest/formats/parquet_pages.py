"""Reads the page headers of a Parquet file before anything is decoded.

A footer and page headers are structs of Thrift's compact protocol. A few bytes may claim any size,
and an index of a few bits can repeat a long text from a dictionary. The decoded size of a file is
therefore bounded from its page headers; its footer is not trusted.

Guaranteed: memory of some kilobytes beside the footer; time in proportion to the pages.

Source: parquet-format (`parquet.thrift`), Thrift's compact protocol.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from controller.ingest.rejection import FileRejectedError

FOOTER_BYTES_MAX = 64 << 20
NESTING_MAX = 64
SCHEMA_ELEMENTS_MAX = 1 << 16
_HEADER_BYTES = 1 << 13
_HEADER_BYTES_MAX = 1 << 23
_DEPTH_MAX = 16
_INTEGERS = (4, 5, 6)
"""Thrift's types of integers of 16, 32 and 64 bits, which are stored in 1 to 10 bytes."""

_SIZES = {1: 0, 2: 0, 3: 1, 7: 8}
"""Bytes of a value, by Thrift's type: true and false (the type is the value), byte, double."""

PLAIN_MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
"""Begins and ends a file whose footer is encrypted."""

_ROW_GROUPS, _COLUMNS, _CRYPTO_METADATA = 4, 1, 8
_SIGNATURE_BYTES, _ZEROS = 28, 8
ENCRYPTED = (
    "the file is encrypted, and the service has no keys. Write it without encryption, or decrypt "
    "it before dropping it, for example with pyarrow and decryption_properties"
)

_OLD_WRITER = re.compile(r"parquet-mr(?: version (\d+)\.(\d+)\.(\d+))?")
_COUNTS_HEADERS = (1, 2, 9)

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
DELTA_BYTE_ARRAY = 7


class _Torn(Exception):
    """The bytes end inside a struct, or are not a struct."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page, as its header describes it: `bytes` is uncompressed; a missing number is -1."""

    kind: int
    bytes: int
    values: int
    encoding: int
    rows: int


class _Compact:
    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def byte(self) -> int:
        if self.at >= len(self._data):
            raise _Torn
        self.at += 1
        return self._data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise _Torn

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield id and type of a struct's fields; the caller reads or skips each."""
        last = 0
        while (head := self.byte()) != 0:
            last = last + (head >> 4) if head >> 4 else self.number()
            yield last, head & 0x0F

    def skip(self, kind: int, depth: int = 0) -> None:
        if depth > _DEPTH_MAX:
            raise _Torn
        if kind in _SIZES:
            self.at += _SIZES[kind]
        elif kind in _INTEGERS:
            self.varint()
        elif kind == 8:
            size = self.varint()
            self.at += size
        elif kind in (9, 10):
            count, inner = self.list_head()
            for _ in range(count):
                self._skip_item(inner, depth)
        elif kind == 11:
            count = self.varint()
            kinds = self.byte() if count else 0
            for _ in range(count):
                self._skip_item(kinds >> 4, depth)
                self._skip_item(kinds & 0x0F, depth)
        elif kind == 12:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        else:
            raise _Torn
        if self.at > len(self._data):
            raise _Torn

    def list_head(self) -> tuple[int, int]:
        head = self.byte()
        count = head >> 4
        return (self.varint() if count == 15 else count), head & 0x0F

    def _skip_item(self, kind: int, depth: int) -> None:
        if kind in (1, 2):  # in a list, a boolean has a byte of its own
            self.at += 1
        self.skip(kind, depth + 1)


def check_footer(handle: int, size: int) -> None:
    """Check the size of the footer, and the depth and width of its schema; or refuse the file."""
    try:
        _check_schema(_Compact(_footer(handle, size)))
    except _Torn:
        _refuse("parquet_damaged", "the footer cannot be read")


def _footer(handle: int, size: int) -> bytes:
    tail = os.pread(handle, 8, max(0, size - 8))
    if tail[4:] == ENCRYPTED_MAGIC:
        _refuse("parquet_encrypted", ENCRYPTED)
    if len(tail) < 8 or tail[4:] != PLAIN_MAGIC:
        _refuse(
            "parquet_damaged",
            "the file does not end with PAR1, as a Parquet file does; it is damaged or truncated",
        )
    (length,) = struct.unpack("<I", tail[:4])
    if length > FOOTER_BYTES_MAX:
        _refuse(
            "parquet_limits",
            f"the footer has {length} bytes, but at most {FOOTER_BYTES_MAX} are allowed",
        )
    if length + 12 > size:
        _refuse("parquet_damaged", "the footer is larger than the file")
    return os.pread(handle, length, size - 8 - length)


def encrypted_columns(handle: int, size: int) -> frozenset[int]:
    """Return the numbers of the encrypted columns of a file with a plain footer.

    Arrow ends the process if such a column is read.
    """
    data = _footer(handle, size)
    if not _may_be_signed(data):
        return frozenset()
    try:
        return frozenset(_encrypted(_Compact(data)))
    except _Torn:
        _refuse("parquet_damaged", "the footer cannot be read")


def _may_be_signed(footer: bytes) -> bool:
    """Return whether a footer may end with the signature of a file with encrypted columns.

    Otherwise the footer is not read completely. The signature follows the end of a struct, which is
    a zero. It is random, so it has few zeros, while most footers end with a list of structs without
    fields, so with many zeros.
    """
    signature = footer[-_SIGNATURE_BYTES:]
    return footer[-_SIGNATURE_BYTES - 1 :][:1] == b"\0" and signature.count(0) < _ZEROS


def _encrypted(footer: _Compact) -> Iterator[int]:
    for name, kind in footer.fields():
        if name != _ROW_GROUPS:
            footer.skip(kind)
            continue
        for _ in range(footer.list_head()[0]):
            for field, inner in footer.fields():
                if field != _COLUMNS:
                    footer.skip(inner)
                    continue
                for at in range(footer.list_head()[0]):
                    for part, type_ in footer.fields():
                        if part == _CRYPTO_METADATA:
                            yield at
                        footer.skip(type_)


def _check_schema(footer: _Compact) -> None:
    for name, kind in footer.fields():
        if name != 2:
            footer.skip(kind)
            continue
        count, _ = footer.list_head()
        if count > SCHEMA_ELEMENTS_MAX:
            _refuse("parquet_limits", f"the schema has more than {SCHEMA_ELEMENTS_MAX} elements")
        open_: list[int] = []
        for _ in range(count):
            children = 0
            for field, inner in footer.fields():
                if field == 5:
                    children = footer.number()
                else:
                    footer.skip(inner)
            while open_ and open_[-1] == 0:
                open_.pop()
            if open_:
                open_[-1] -= 1
            open_.append(max(0, children))
            if len(open_) > NESTING_MAX:
                _refuse("parquet_limits", f"columns are nested deeper than {NESTING_MAX}")
        return


def header_bytes_uncounted(created_by: str | None) -> int:
    """Return by how many bytes a column chunk of this writer can exceed its declared size.

    Before 1.2.9, parquet-mr left out the header of the dictionary page, and wrote the position of
    that page as the position of the first data page. Arrow reads up to 100 bytes more of such a
    file.

    Source: PARQUET-816; `parquet/file_reader.cc` of Arrow.
    """
    writer = _OLD_WRITER.match(created_by or "")
    if writer is None:
        return 0
    version = tuple(int(number or 0) for number in writer.groups())
    return 100 if version < _COUNTS_HEADERS else 0


def pages(handle: int, start: int, size: int) -> Iterator[Page]:
    """Yield the pages of a column chunk, by their headers; raises `parquet_damaged`."""
    at, end = start, start + size
    while at < end:
        page, header, packed = _header(handle, at, end)
        if packed < 0 or page.bytes < 0 or page.values < 0 or at + header + packed > end:
            _refuse("parquet_damaged", "a page is larger than its column")
        yield page
        at += header + packed


def _header(handle: int, at: int, end: int) -> tuple[Page, int, int]:
    size = _HEADER_BYTES
    while True:
        data = os.pread(handle, min(size, end - at), at)
        try:
            return _page(_Compact(data))
        except _Torn:
            if size >= min(_HEADER_BYTES_MAX, end - at):
                _refuse("parquet_damaged", "a page has no header")
            size *= 8  # a header may also hold statistics of long values


def _page(header: _Compact) -> tuple[Page, int, int]:
    kind = size = packed = -1
    said: dict[int, int] = {}
    for name, type_ in header.fields():
        if name == 1:
            kind = header.number()
        elif name == 2:
            size = header.number()
        elif name == 3:
            packed = header.number()
        elif name in (5, 7, 8) and type_ == 12:
            said = _numbers(header)
        else:
            header.skip(type_)
    is_second = kind == DATA_PAGE_V2
    page = Page(
        kind,
        size,
        values=said.get(1, 0),
        encoding=said.get(4 if is_second else 2, -1),
        rows=said.get(3, -1) if is_second else -1,
    )
    return page, header.at, packed


def _numbers(header: _Compact) -> dict[int, int]:
    said: dict[int, int] = {}
    for name, type_ in header.fields():
        if type_ in _INTEGERS:
            said[name] = header.number()
        else:
            header.skip(type_)
    return said


def _refuse(rule: str, message: str) -> NoReturn:
    raise FileRejectedError(rule, message)
