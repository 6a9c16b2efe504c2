# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lets users change dead letters before they are sent back: the letter that their functions receive and return."""
