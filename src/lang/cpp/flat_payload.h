// SPDX-License-Identifier: Apache-2.0
#pragma once
// The payload of a compiled phase whose arrays have different lengths, as one whose places follow from n alone: what a
// compiled program writes and reads (lang/cpp/emit_cpp.h). The library makes one of the other.
//
//   flat     as the payload, but for trits: 2 bits each, the lowest first, zeros behind the last of a block
//   same     to_payload writes what the interpreter writes; to_flat refuses what codings.h refuses of trits. What
//            the rest of a payload must be is the compiled check's
#include "lang/front/checked.h"
#include "tithe/byte_view.h"

namespace tithe::lang {

// The program that is compiled: of flat payloads. Others are as they were.
Checked flat_program(Checked program);

// The size of a flat payload of n values, for a program that is compiled and varies.
std::size_t flat_bytes(const Checked& program, std::size_t n);

// The bytes that it becomes; `to` has room for payload_bytes(program, n).
std::size_t to_payload(const Checked& program, const std::uint8_t* flat, std::size_t n, std::uint8_t* to);

// False: its trits are not as they are written, or it has not the bytes that they ask for.
bool to_flat(const Checked& program, ByteView payload, std::size_t n, std::uint8_t* flat);

}  // namespace tithe::lang
