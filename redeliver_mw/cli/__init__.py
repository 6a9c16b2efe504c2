# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements the command line `redeliver`. Each command is a module with `register(app)`; `main.py` assembles them."""
