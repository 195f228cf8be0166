// SPDX-License-Identifier: Apache-2.0
#pragma once
// A session's transport is opened, which waits for the other ranks.
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "interruptible.h"
#include "tithe/connect.h"

namespace tithe::python {

// The caller's exchange, on the caller's own thread. What it raises reaches the caller as it is.
AllGather python_all_gather(const nb::callable& gather, const std::shared_ptr<MainThreadCalls>& calls);
// Not ok: its ranks are threads, or there is no such transport.
Status between_processes(std::string_view text);
// Ctrl-C withdraws it. It is not waited for, since an exchange of the caller's cannot be: it owns what it uses.
std::unique_ptr<Transport> open_interruptible(const std::shared_ptr<MainThreadCalls>& calls,
                                              const std::string& transport, ConnectOptions connect,
                                              const std::shared_ptr<std::atomic<bool>>& withdrawn);

}  // namespace tithe::python
