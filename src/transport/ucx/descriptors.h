// SPDX-License-Identifier: Apache-2.0
#pragma once
// UCX ends the process if it cannot open a file, so tithe checks the limit first.
#include "tithe/status.h"

namespace tithe::ucx {

// kIo if this process may open fewer files than UCX needs among `world` ranks. The error has both numbers and the cure.
Status check_descriptors(int world);

}  // namespace tithe::ucx
