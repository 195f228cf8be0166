// SPDX-License-Identifier: Apache-2.0
#pragma once
// The CUDA driver, loaded at run time, never linked. tithe has its own declarations.
//
//   refused   kUnsupported, in one line: there is no driver, it lacks a function of driver.def, or it is older than
//             kOldestDriver
//   errors    have the driver's name of the error
//   permanent a loaded driver is never unloaded
#include <cstddef>
#include <cstdint>
#include <string>

#include "tithe/status.h"

namespace tithe::device {

inline constexpr int kOldestDriver = 12000;  // 1000 * major + 10 * minor, as the driver reports it

struct Driver {
#define TITHE_DRIVER(name, symbol, parameters) int(*name) parameters = nullptr;
#include "device/driver.def"
#undef TITHE_DRIVER
  int found_version = 0;

  // The driver's name of an error: CUDA_ERROR_OUT_OF_MEMORY.
  std::string error(int code) const;
};

Result<Driver> load_driver(const std::string& library);
// The machine's driver, loaded once: TITHE_CUDA names the library; default: libcuda.so.1.
const Result<Driver>& this_driver();

}  // namespace tithe::device
