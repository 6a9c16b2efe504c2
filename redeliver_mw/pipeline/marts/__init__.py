# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes the marts: one file for each, with a pure function from DataFrame to DataFrame.

`schemas` lists their columns.
"""
