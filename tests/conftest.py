# SPDX-License-Identifier: Apache-2.0
import signal

# A shell's background job ignores interrupts, and so do its children: here Ctrl-C is tested, so it must work.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
