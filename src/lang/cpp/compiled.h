// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program that was compiled (lang/runtime/object.h), with the interpreter beside it.
//
//   phases     each is an object of its own, or none; one is handed what the phase in front agreed on (context.h)
//   same       bytes, residuals, values and verdicts as the interpreter's, which says what is wrong with a payload
//   checked    an object is used only after matches_interpreter() has held it to that, on seeded values
//   apart      a combination has one object at a time; who runs it already goes on with the one it began with
//   told       Running::how says what runs, and why nothing faster does
#include "lang/run/interpreter.h"
#include "lang/run/verify.h"
#include "lang/runtime/object.h"

namespace tithe::lang {

// These are Impl's functions, for a combination with an object.
Result<Encoded> encode_compiled(const Object& object, const Combination& of, std::string_view name,
                                const Call& call, const EncodeInput& in, Bytes out);
Status check_compiled(const Object& object, const Combination& of, std::string_view name, const Call& call,
                      std::size_t n, ByteView payload);
Status decode_compiled(const Object& object, const Combination& of, std::string_view name, const Call& call,
                       std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);

// Scratch that they need; check takes it where it is there.
std::size_t compiled_bytes(const Combination& of, const Settings& settings, std::size_t n);

// As lang/run/verify.h has it: of 1 kind of values where an object was checked before, kAllKinds where it is new.
bool matches_interpreter(const Object& object, const Combination& of, const Settings& settings,
                         unsigned kinds);

// The object that runs a phase now, at the level in use; nullptr: the interpreter.
const Object* object_of(const Combination& of);

// Sees to it that a phase runs as fast as it can at this level, and says how in Running::how. One call at a time.
void prepare_phase(const Combination& of, const Settings& settings, Level level);

}  // namespace tithe::lang
