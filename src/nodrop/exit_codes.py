"""Exit codes of all commands, one meaning each (docs/reference/commands.md).

A command that a signal ended exits with 128 and the signal's number, as a shell has it.
"""

from __future__ import annotations

import signal

ANSWERED = 0
"""The question has its answer."""
FAULTS_SEEN = 1
"""A trial failed, a check did not pass, or a loss or a finding was seen."""
REFUSED = 2
"""The input is bad or this host lacks something; nothing was touched."""
LAB_FAILED = 3
"""The lab could not do what was asked."""
DEFECT = 4
"""An error that nodrop has no words for."""
WORSE = 5
"""A comparison found a difference for the worse, or a load that is needed is too much."""
NO_ANSWER = 6
"""Neither yes nor no: too early to say, no figure, or something could not be read."""

INTERRUPTED = 128 + signal.SIGINT
READER_LEFT = 128 + signal.SIGPIPE
"""The reader closed the pipe that the program wrote to."""
