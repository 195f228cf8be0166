// SPDX-License-Identifier: Apache-2.0
#pragma once
// UCX ends the process where it cannot open a file: so tithe looks before UCX does.
#include "tithe/status.h"

namespace tithe::ucx {

// kIo where this process may not open as many files as UCX will among `world` ranks: how many that is, how many it
// has, and what to do.
Status check_descriptors(int world);

}  // namespace tithe::ucx
