# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A plan is sent back: a few letters first, at a rate, each batch confirmed and written down. `replay` is in `job`."""
