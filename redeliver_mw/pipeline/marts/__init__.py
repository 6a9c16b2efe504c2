# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""One file a mart, each a pure function from DataFrame to DataFrame; their columns stand in `schemas`."""
