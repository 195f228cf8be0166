// SPDX-License-Identifier: Apache-2.0
#include "device/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/environment.h"

namespace tithe::device {

Result<Driver> load_driver(const std::string& library) {
  void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr)
    return Status(Code::kUnsupported, fmt::format("there is no CUDA driver: {}", ::dlerror()));
  Driver driver;
#define TITHE_DRIVER(name, symbol, parameters)                                     \
  driver.name = reinterpret_cast<decltype(driver.name)>(::dlsym(loaded, #symbol)); \
  if (driver.name == nullptr)                                                      \
    return Status(Code::kUnsupported, "the CUDA driver has no " #symbol ": install a newer driver");
#include "device/driver.def"
#undef TITHE_DRIVER
  if (const int code = driver.init(0); code != 0)
    return Status(Code::kUnsupported, fmt::format("the CUDA driver does not start: {}", driver.error(code)));
  const int code = driver.version(&driver.found_version);
  const int found = driver.found_version;
  if (code != 0 || found < kOldestDriver)
    return Status(Code::kUnsupported,
                  fmt::format("the CUDA driver has version {}.{}; it must be {}.{} or newer", found / 1000,
                              found % 1000 / 10, kOldestDriver / 1000, kOldestDriver % 1000 / 10));
  return driver;
}

std::string Driver::error(int code) const {
  const char* text = nullptr;
  return error_name(code, &text) == 0 && text != nullptr ? text : fmt::format("CUDA error {}", code);
}

const Result<Driver>& this_driver() {
  static const Result<Driver> kDriver = load_driver(cuda_library().empty() ? "libcuda.so.1" : cuda_library());
  return kDriver;
}

}  // namespace tithe::device
