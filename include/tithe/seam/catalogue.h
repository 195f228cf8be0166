// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds codecs by name: the codecs of codecs.def, and programs in the codec language (docs/guide/language.md), which
// become codecs when their file is read.
#include <span>
#include <string>
#include <string_view>

#include "tithe/seam/codec.h"
#include "tithe/seam/spec.h"

namespace tithe {

std::span<const Codec* const> all_codecs();      // in the order of codecs.def
const Codec* find_codec(std::string_view name);  // nullptr: no such name
const Codec* find_codec(CodecId id);             // nullptr: no such id
CodecId id_of(const Codec& codec);  // 0: the codec is neither in codecs.def nor from a program's file

// A program's file is read and checked once per content; it is not compiled. kInvalid: an unknown name, a value out
// of range, or an invalid program; the text contains the nearest known name, the allowed range, or the line numbers.
// kIo: the file cannot be read. kUnsupported: too many programs.
Result<Spec> parse_spec(std::string_view text);

// Compiles a program with these settings, or takes it from the library or the cache; compiling takes about a second.
// Without prepare() the interpreter executes the program. Does nothing for other codecs. Thread-safe. Session::open
// calls it for all codecs of its choices.
void prepare(const Spec& spec);

// One line about the execution of the program and the time of preparing it: "compiled for avx2, in 1.1 s". Empty: not
// a program.
std::string how_it_runs(const Spec& spec);

}  // namespace tithe
