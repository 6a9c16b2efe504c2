# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the report for a person on call: what fails, what recovers and when, what never does, and what to do.

::

    job          reads the marts through Spark, asks the back-test, writes the file
      aggregate  reduces marts to what a page can show; DataFrame -> DataFrame
      facts      the page's contents, as plain data, from plain rows; no Spark
      page       facts -> HTML, with `sentences` for the text and `charts` for the pictures
"""
