// SPDX-License-Identifier: Apache-2.0
#pragma once
// Usual causes for which UCX fails and which its own texts do not name. Each is the end of an error's text, with the
// cure, and empty where the cause is not there.
#include <string>

namespace tithe::ucx {

// /dev/shm has no room for the workers of `world` ranks, as in containers.
std::string little_shared_memory(int world, const char* folder = "/dev/shm");
// Several interfaces are up, and UCX does not try which of them reaches the other rank: docker0 may have one address on
// two hosts.
std::string several_interfaces();
// Another UCX than the one that tithe was built with is loaded, as where MPI for Python brings its own.
std::string another_ucx();
std::string another_ucx(unsigned major, unsigned minor);

}  // namespace tithe::ucx
