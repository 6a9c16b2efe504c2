# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lets a reader of a data source take conditions from Spark, without an error if Spark passes none on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyspark.sql.datasource import DataSourceReader, Filter


class PushedFilters:
    """Is called by Spark as `pushFilters`, in place of the method that every reader inherits.

    If its setting is off, Spark refuses a reader with a method `pushFilters` instead of ignoring the method. Spark
    looks at `__func__`, and calls the object. A reader sets it with `vars(self)["pushFilters"] = PushedFilters(…)`.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[Sequence[Filter]], Iterable[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        return self._push(filters)
