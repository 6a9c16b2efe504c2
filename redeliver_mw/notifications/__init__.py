# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Notifies people of an outage, and of its end: dead letters, new failures, open breakers, paused sources.

A `TroubleSink` counts what happens, `OutageGroups` decides what is a notification, and a `NotificationSender` has a
thread and tries again until the webhook or the function has the notification.
"""

from .notification import Notification
from .option import Notify

__all__ = ["Notification", "Notify"]
