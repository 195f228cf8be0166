// SPDX-License-Identifier: Apache-2.0
// A round of a session as a custom call of XLA. _jax_ffi.py compiles this file at first use, against the headers of
// jaxlib, and loads it beside tithe._core, which supplies the addresses of the functions that it calls.
#include <cstdint>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;

using Run = int (*)(std::int64_t number, void* const* values, const std::size_t* sizes, std::size_t tensors,
                    char* what, std::size_t room);
Run run = nullptr;

// Results are where the arguments are, by input_output_aliases.
ffi::Error begin(ffi::RemainingArgs given, ffi::RemainingRets results, std::int64_t number) {
  std::vector<void*> values;
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto from = given.get<ffi::AnyBuffer>(i);
    auto to = results.get<ffi::AnyBuffer>(i);
    if (!from.has_value() || !to.has_value() || from->untyped_data() != (*to)->untyped_data())
      return ffi::Error(ffi::ErrorCode::kInternal, "tithe: a result is not where its argument is");
    values.push_back((*to)->untyped_data());
    sizes.push_back(static_cast<std::size_t>((*to)->element_count()));
  }
  char what[1000];
  if (run(number, values.data(), sizes.data(), values.size(), what, sizeof what) == 0)
    return ffi::Error::Success();
  return ffi::Error(ffi::ErrorCode::kInternal, what);
}

}  // namespace

extern "C" void tithe_bind(void* call) { run = reinterpret_cast<Run>(call); }

XLA_FFI_DEFINE_HANDLER_SYMBOL(tithe_round, begin,
                              ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<std::int64_t>("number"));
