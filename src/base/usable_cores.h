// SPDX-License-Identifier: Apache-2.0
#pragma once
// The CPU cores that this process may use: those on which the calling thread, and the threads that it starts, may run,
// limited by control groups, as in a container.
#include <string>
#include <string_view>

namespace tithe {

int usable_cores();  // at least 1
// Equal for processes of one machine that share these cores and the same limit.
std::string which_cores();

// The number of cores that control groups under `root` grant; 0: no limit. `own`: content of /proc/self/cgroup.
double granted_cores(const std::string& root, std::string_view own);

}  // namespace tithe
