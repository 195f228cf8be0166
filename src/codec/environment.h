// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the environment says to the library, beside what machine.h and connect.h tell.
#include <string>

namespace tithe {

// The file that TITHE_TRACE names (docs/trace.md); empty where it names none. Looked up anew each time.
std::string trace_asked();

}  // namespace tithe
