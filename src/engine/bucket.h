// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a session asks of a bucket that it is handed: whether it makes sense, and whether its layout was seen before.
#include <cstdint>
#include <span>

#include "engine/unit.h"
#include "tithe/session.h"

namespace tithe::engine {

// kInvalid for a tensor without key or data, one that is not aligned, rows that do not fit, and too many values.
Status check_bucket(std::span<const Tensor> bucket);

// Of keys, sizes, types and rows, in order.
std::uint64_t layout_hash(std::span<const Tensor> bucket);
bool same_layout(const Unit& unit, std::span<const Tensor> bucket);

}  // namespace tithe::engine
