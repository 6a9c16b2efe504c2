# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What is given to a journal, as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .record_ids import RecordIds
from .records import AnyRecord, AttemptRecord, row_to_line, to_line


class Serializer:
    """Of one journal, on its thread. `failed` hears of each item that cannot be written; it costs itself only."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._ids = RecordIds()

    def lines(self, item: Any) -> Iterable[bytes]:
        """Those of an item of `Journal.append`, each with its newline."""
        try:
            if isinstance(item, tuple) and item and callable(item[0]):
                item = item[0](*item[1:])
            if type(item) is bytes:  # as nearly all are
                return (item,)
            if type(item) is AttemptRecord:  # no generator is made for it
                return (self._line(item),)
        except Exception as error:
            self._failed(error)
            return ()
        return self._lines_of(item)

    def _lines_of(self, item: Any) -> Iterator[bytes]:
        try:
            for found in _flat(item):
                if isinstance(found, tuple):
                    yield row_to_line(found, found[1] or self._ids.next())
                else:
                    yield self._line(found)
        except Exception as error:
            self._failed(error)

    def _line(self, record: AnyRecord) -> bytes:
        if not record.record_id:
            record.record_id = self._ids.next()
        return to_line(record)


def _flat(item: Any) -> Iterator[AnyRecord | tuple[Any, ...]]:
    """The records and plain rows that an item stands for."""
    if isinstance(item, AnyRecord):
        yield item
    elif isinstance(item, tuple) and item and callable(item[0]):
        yield from _flat(item[0](*item[1:]))
    elif isinstance(item, tuple):
        yield item
    elif callable(item):
        yield from _flat(item())
    elif item is not None:
        for each in item:
            yield from _flat(each)
