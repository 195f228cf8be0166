// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codecs loaded from program files at run time. They differ from the codecs of codecs.def in names and ids only:
//
//   name   the name in the `codec` line and the hash of the content: onebit@5f0c3a91b2d4. So ranks with different files
//          have different plans, and two files with the same name are two codecs
//   id     derived from the hash, kFirstLoadedId .. 65535
//   once   the same content is loaded once, whatever its path; a loaded codec is never unloaded. Thread-safe
#include "lang/loader.h"
#include "tithe/seam/codec.h"

namespace tithe::catalogue {

inline constexpr std::uint16_t kFirstLoadedId = 0xf000;

// True if a spec names a file and not a codec: it has a slash, or the language's ending.
bool is_file(std::string_view codec);

// Loads a program file. Returns the existing program if its content was loaded before.
//   kInvalid      the file does not exist, is too large, or has errors, listed as in lang/front/source.h
//   kIo           the system refuses to open or read it
//   kUnsupported  another loaded program has the same id
Result<const lang::LoadedProgram*> load(const std::string& path);

struct Listed {
  const Codec* codec = nullptr;
  CodecId id{};
  const Listed* next = nullptr;
};
// The head of the list of loaded programs; nullptr if it is empty. Needs no lock.
const Listed* newest_program();

// The first program for which is(codec, id) is true; an empty element if there is none.
template <typename Is>
Listed find_program(const Is& is) {
  for (const Listed* l = newest_program(); l != nullptr; l = l->next)
    if (is(*l->codec, l->id)) return *l;
  return {};
}

}  // namespace tithe::catalogue
