// SPDX-License-Identifier: Apache-2.0
#pragma once
// The environment variables of the library that machine.h and connect.h do not cover.
#include <string>

namespace tithe {

// The file named by TITHE_TRACE (docs/guide/trace.md); empty if unset. Read on each call.
std::string trace_option();

// The file named by TITHE_ADVISE (docs/reference/cli_jobs.md), and the value of TITHE_ADVISE_ALLOW; empty if unset.
std::string advice_option();
std::string advice_allowances();

// The CUDA driver and the CUDA compiler named by TITHE_CUDA and TITHE_NVRTC (src/device/). Empty: the system's.
std::string cuda_library();
std::string nvrtc_library();

}  // namespace tithe
