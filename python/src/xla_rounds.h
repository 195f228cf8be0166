// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rounds of a session that XLA begins (tithe/_jax_ffi.cc): without Python, its lock or a copy of the values.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tithe/session.h"

namespace tithe::python {

// The round of one bucket, whose tensors have these keys, sizes and types; its number, for run_round. A program that
// XLA has compiled may name it for as long as the process lives, so it stays; it does not keep the session.
std::int64_t new_round(const std::shared_ptr<Session>& session, std::vector<std::string> keys,
                       const std::vector<std::size_t>& sizes, const std::vector<std::string>& types);

// 0, or what went wrong as text of at most `room` bytes with its end. values: of each tensor, in place.
extern "C" int tithe_run_round(std::int64_t number, void* const* values, const std::size_t* sizes,
                               std::size_t tensors, char* what, std::size_t room);

}  // namespace tithe::python
