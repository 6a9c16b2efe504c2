# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes hostile messages from a seed, and sends them to real brokers and through everything that reads messages.

`python -m tests.hostile --broker rabbitmq43 --seconds 3600` runs for long, `--seed N` makes one round again. A round
(`rounds.py`) sends the same messages to a source and, as a control, to a queue that nobody consumes. An App or a
drop-in consumes the source; the commands, the journal's reader and the rows of the drain read what comes of it. What
reaches the dead-letter queue has to be, byte for byte, what a bare client reads from the control.
"""
