# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes ATG Patch Bay's dynamoMessagingSystem.xml."""
