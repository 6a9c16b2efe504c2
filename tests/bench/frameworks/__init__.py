# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs other frameworks on RabbitMQ, each as a side that imports that framework and the standard library only.

They run in an environment of their own, which `make bench` makes from `tests/bench/frameworks.txt`.
"""
