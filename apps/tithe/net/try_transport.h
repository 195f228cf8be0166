// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trial whether two ranks of this machine reach each other over a transport.
#include <string_view>

#include "tithe/status.h"

namespace tithe::cli {

// Opens two ranks as threads, with what the environment says, and passes a message each way. `text` is what
// open_transport takes. Ends within about ten seconds.
Status try_transport(std::string_view text);

}  // namespace tithe::cli
