// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cores that this process may use: those that the calling thread may run on, as threads that it starts will, and no
// more than what control groups grant, as those of a container.
#include <string>
#include <string_view>

namespace tithe {

int usable_cores();  // at least 1
// Equal for processes of one machine that share these cores, and what they are granted.
std::string which_cores();

// Cores that control groups grant, by what they say under `root`; 0: as many as there are. `own`: /proc/self/cgroup.
double granted_cores(const std::string& root, std::string_view own);

}  // namespace tithe
