# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds redelivery policies: the model, its back-offs, and the languages that policies are written in."""

from .backoff import Backoff
from .decisions import Accept, DeadLetter, Decision, Discard, Keep, Redeliver, Target
from .destinations import AnyPolicy, PolicyMap
from .expiry import Expiry
from .loading import load_policies, policy_of
from .model import Arm, RedeliveryPolicy

__all__ = [
    "Accept",
    "AnyPolicy",
    "Arm",
    "Backoff",
    "DeadLetter",
    "Decision",
    "Discard",
    "Expiry",
    "Keep",
    "PolicyMap",
    "Redeliver",
    "RedeliveryPolicy",
    "Target",
    "load_policies",
    "policy_of",
]
