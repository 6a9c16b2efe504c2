# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Is the core of redelivery: an interceptor that turns events into commands. No I/O and no clock."""
