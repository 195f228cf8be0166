// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs compiled programs (lang/runtime/object.h), and falls back to the interpreter.
//
//   phases     each phase has an object of its own, or none; it gets the previous phase's items as arrays (context.h)
//   equal      bytes, residuals, values and Status equal the interpreter's, which also words the error for a payload
//   verified   an object is used only after matches_interpreter() found it equal on seeded values
//   threads    the object of a combination may change at run time; a call uses one object from start to end
//   status     Running::how names the implementation in use, and why no faster one is available
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

// The scratch of these functions; check() uses scratch if the caller provides it.
std::size_t compiled_bytes(const Combination& of, const Settings& settings, std::size_t n);

// Verifies an object (lang/run/verify.h): with 1 kind of values if the object was verified before, with kAllKinds if
// it is new.
bool matches_interpreter(const Object& object, const Combination& of, const Settings& settings,
                         unsigned kinds);

// The object for a phase at the level in use; nullptr: interpret.
const Object* object_of(const Combination& of);

// Finds or compiles the object for a phase at this level, and describes the result in Running::how. Calls must not
// overlap.
void prepare_phase(const Combination& of, const Settings& settings, Level level);

}  // namespace tithe::lang
