// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tests whether two ranks of this machine reach each other over a transport.
#include <string_view>

#include "tithe/status.h"

namespace tithe::cli {

// Opens two ranks as threads, under the environment's variables, and sends a message in each direction. `text`: as for
// open_transport. Ends within about ten seconds.
Status try_transport(std::string_view text);

}  // namespace tithe::cli
