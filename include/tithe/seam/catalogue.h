// SPDX-License-Identifier: Apache-2.0
#pragma once
// From names to codecs: those of codecs.def, and programs in the codec language (docs/guide/language.md), which are
// codecs from the moment their file was read.
#include <span>
#include <string>
#include <string_view>

#include "tithe/seam/codec.h"
#include "tithe/seam/spec.h"

namespace tithe {

std::span<const Codec* const> all_codecs();      // in the order of codecs.def
const Codec* find_codec(std::string_view name);  // nullptr: no such name
const Codec* find_codec(CodecId id);             // nullptr: no such id
CodecId id_of(const Codec& codec);               // 0: it is neither in codecs.def nor of a file that was read

// A program's file is read and checked, once for each content; nothing is compiled.
// kInvalid for an unknown name, a value out of range, a program that is wrong; the text has the nearest known name, the
// allowed range, or the lines. kIo: the file cannot be read. kUnsupported: too many programs.
Result<Spec> parse_spec(std::string_view text);

// Compiles a program with these settings, or takes it from the library or the cache; compiling takes about a second.
// Without prepare() the interpreter runs the program. Does nothing for other codecs. Safe from any thread.
// Session::open calls it for all codecs of its choices.
void prepare(const Spec& spec);

// One line: how the program runs and how long preparing took: "compiled for avx2, in 1.1 s". Empty: no program.
std::string how_it_runs(const Spec& spec);

}  // namespace tithe
