# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Is the runtime of an `App`: start, workers, handlers, and the runner between adapter and interceptor."""
