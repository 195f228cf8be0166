// SPDX-License-Identifier: Apache-2.0
#pragma once
// Flat payloads: the form that compiled programs write and read (lang/cpp/emit_cpp.h) if a payload's arrays have
// variable sizes. All offsets in a flat payload follow from n. The library converts between both forms.
//
//   flat     like the payload, but trits take 2 bits each, the lowest first, zeros behind the last one of a block
//   equal    to_payload writes the interpreter's bytes; to_flat rejects the same trits as codings.h. All other
//            conditions are checked by the compiled check function
#include "lang/front/checked.h"
#include "tithe/byte_view.h"

namespace tithe::lang {

// The program to compile: its payloads are flat. Programs without trits are unchanged.
Checked flat_program(Checked program);

// The size of a flat payload, for a program of variable size.
std::size_t flat_bytes(const Checked& program, std::size_t n);

// Returns the number of bytes written; `to` has room for payload_bytes(program, n).
std::size_t to_payload(const Checked& program, const std::uint8_t* flat, std::size_t n, std::uint8_t* to);

// False if the trits are not in their unique form or the payload's size is wrong.
bool to_flat(const Checked& program, ByteView payload, std::size_t n, std::uint8_t* flat);

}  // namespace tithe::lang
