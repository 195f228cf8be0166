// SPDX-License-Identifier: Apache-2.0
#pragma once
// One declaration per line of transports.def; transports.cc turns them into the table.
#include "tithe/connect.h"

namespace tithe {
#define TITHE_TRANSPORT(name) extern const TransportKind name##_transport;
#include "tithe/transports.def"
#undef TITHE_TRANSPORT
}  // namespace tithe
