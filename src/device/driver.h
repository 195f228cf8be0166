// SPDX-License-Identifier: Apache-2.0
#pragma once
// The CUDA driver: found when asked for, never linked. Declarations are tithe's own.
//
//   refused   kUnsupported, in one line: no driver, one without a function of driver.def, or one older than
//             kOldestDriver
//   named     an error is told as the driver names it
//   stays     what was loaded stays loaded
#include <cstddef>
#include <cstdint>
#include <string>

#include "tithe/status.h"

namespace tithe::device {

inline constexpr int kOldestDriver = 12000;  // 1000 * major + 10 * minor, as the driver counts

struct Driver {
#define TITHE_DRIVER(name, symbol, parameters) int(*name) parameters = nullptr;
#include "device/driver.def"
#undef TITHE_DRIVER
  int found_version = 0;

  // The driver's name for an error: CUDA_ERROR_OUT_OF_MEMORY.
  std::string error(int code) const;
};

Result<Driver> load_driver(const std::string& library);
// That of this machine, looked for once: TITHE_CUDA names it; unless set, libcuda.so.1.
const Result<Driver>& this_driver();

}  // namespace tithe::device
