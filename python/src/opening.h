// SPDX-License-Identifier: Apache-2.0
#pragma once
// Opens a session's transport, which blocks until the other ranks have connected.
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "interruptible.h"
#include "tithe/connect.h"

namespace tithe::python {

// The caller's exchange function, run on the caller's thread. Its exceptions reach the caller unchanged.
AllGather python_all_gather(const nb::callable& gather, const std::shared_ptr<MainThreadCalls>& calls);
// Not ok if the transport is unknown, or if its ranks are threads.
Status between_processes(std::string_view text);
// Ctrl-C sets `withdrawn` and returns at once, because the caller's exchange cannot be interrupted. The detached work
// owns its data.
std::unique_ptr<Transport> open_interruptible(const std::shared_ptr<MainThreadCalls>& calls,
                                              const std::string& transport, ConnectOptions connect,
                                              const std::shared_ptr<std::atomic<bool>>& withdrawn);

}  // namespace tithe::python
