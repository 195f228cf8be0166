// SPDX-License-Identifier: Apache-2.0
#pragma once
// Frequent causes of UCX failures that UCX's own error texts do not name. Each function returns a suffix for an error
// text, with the cure, or an empty string if its cause does not apply.
#include <string>

namespace tithe::ucx {

// /dev/shm has too little room for the workers of `world` ranks, as is common in containers.
std::string little_shared_memory(int world, const char* folder = "/dev/shm");
// Several interfaces are up. UCX does not test which of them reaches the other rank: docker0 may have the same address
// on two hosts.
std::string several_interfaces();
// The process has loaded another UCX than the one that tithe was built with; MPI for Python, for example, brings its
// own.
std::string another_ucx();
std::string another_ucx(unsigned major, unsigned minor);

}  // namespace tithe::ucx
