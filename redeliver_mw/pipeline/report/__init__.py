# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The page for a person on call: what fails, what heals and when, what never does, and what to do about it.

::

    job          reads the marts through Spark, asks the back-test, writes the file
      aggregate  marts cut down to what a page can show; DataFrame -> DataFrame
      facts      what the page says, as plain data, from plain rows; no Spark
      page       facts -> HTML, with `sentences` for the text and `charts` for the pictures
"""
