// SPDX-License-Identifier: Apache-2.0
#pragma once
// The environment's words to the library, beside what machine.h and connect.h tell.
#include <string>

namespace tithe {

// The file that TITHE_TRACE names (docs/guide/trace.md); empty where it names none. Looked up anew each time.
std::string trace_asked();

// The file that TITHE_ADVISE names (docs/reference/cli_jobs.md), and what TITHE_ADVISE_ALLOW says; empty where they say
// nothing.
std::string advice_asked();
std::string advice_allows();

// The libraries that TITHE_CUDA and TITHE_NVRTC name: a CUDA driver, and its compiler (src/device/). Empty: the
// system's.
std::string cuda_asked();
std::string nvrtc_asked();

}  // namespace tithe
