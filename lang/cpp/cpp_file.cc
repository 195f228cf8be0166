// SPDX-License-Identifier: Apache-2.0
// Combines emitted text with the prelude: for the text's key, and as a complete source file.
#include <fmt/format.h>
#include <xxhash.h>

#include "lang/cpp/emit_cpp.h"
#include "lang/runtime/object.h"
#include "lang/runtime/prelude.h"

namespace tithe::lang {
namespace {

std::string prelude() {
  std::string all;
  for (const char* const* part : kPrelude) all += *part;
  return all;
}

std::uint64_t hash_of(const std::string& text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace

std::uint64_t cpp_key(const std::string& text) {
  static const std::uint64_t kFront = hash_of(prelude());
  return hash_of(fmt::format("{} {:016x}\n{}", kObjectInterface, kFront, text));
}

std::string cpp_file(std::span<const CppBody> bodies, const std::string& symbol) {
  std::string out = "// Made by tithe of a program in the codec language.\n";
  out += prelude();
  for (std::size_t k = 0; k < bodies.size(); ++k)
    out += fmt::format("\nnamespace {{\nnamespace p{} {{\n{}}}\n}}\n", k, bodies[k].text);
  out += fmt::format(
      "\nextern \"C\" __attribute__((visibility(\"default\"))) const Object {0}[{1}];\n"
      "extern \"C\" const Object {0}[{1}] = {{\n",
      symbol, bodies.size() + 1);
  for (std::size_t k = 0; k < bodies.size(); ++k)
    out += fmt::format("    {{{}, {}, 0x{:016x}ULL, p{}::encode, {}, {}}},\n", kObjectInterface,
                       bodies[k].combination, bodies[k].key, k,
                       bodies[k].checks ? fmt::format("p{}::check", k) : "nullptr",
                       bodies[k].decodes ? fmt::format("p{}::decode", k) : "nullptr");
  return out + "    {0, 0, 0, nullptr, nullptr, nullptr}};\n";
}

}  // namespace tithe::lang
