# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sends dead letters back that lie outside of a broker: in batches, at a rate, with the answer for each copy.

The replay of a plan and the replay from the store both use it.
"""
