// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rounds of a session that XLA starts (tithe/_jax_ffi.cc), without Python, the GIL or a copy of the values.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tithe/session.h"

namespace tithe::python {

// Registers the round of one bucket, with tensors of these keys, sizes and types, and returns its number for
// tithe_run_round. A program compiled by XLA may use the number as long as the process lives, so the registration is
// never removed; it does not keep the session alive.
std::int64_t new_round(const std::shared_ptr<Session>& session, std::vector<std::string> keys,
                       const std::vector<std::size_t>& sizes, const std::vector<std::string>& types);

// Returns 0, or the error code with a text of at most `room` bytes, including its end. `values`: one array per tensor,
// updated in place.
extern "C" int tithe_run_round(std::int64_t number, void* const* values, const std::size_t* sizes,
                               std::size_t tensors, char* what, std::size_t room);

}  // namespace tithe::python
