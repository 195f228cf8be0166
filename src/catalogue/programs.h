// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs in the codec language as codecs, like those of codecs.def but for their names and ids:
//
//   name   that of the `codec` line and its content's hash: onebit@5f0c3a91b2d4. So ranks with different files have
//          different plans, and two files of one name are two codecs
//   id     from the hash, kFirstLoadedId .. 65535
//   once   the same content is loaded once, whatever the path; loaded codecs stay for ever. Threads may load at a time
#include "lang/loader.h"
#include "tithe/seam/codec.h"

namespace tithe::catalogue {

inline constexpr std::uint16_t kFirstLoadedId = 0xf000;

// True if a spec names a file and not a codec: it has a slash, or the language's ending.
bool is_file(std::string_view codec);

//   kInvalid      no such file, or a too large one; what is wrong with it, line by line (lang/front/source.h)
//   kIo           the system does not let it be read
//   kUnsupported  two contents with one id
Result<const lang::LoadedProgram*> load(const std::string& path);

struct Listed {
  const Codec* codec = nullptr;
  CodecId id{};
  const Listed* next = nullptr;
};
const Listed* newest_program();  // then ->next; nullptr: none was loaded. Needs no lock

// The first for which is(codec, id); none: an empty one.
template <typename Is>
Listed find_program(const Is& is) {
  for (const Listed* l = newest_program(); l != nullptr; l = l->next)
    if (is(*l->codec, l->id)) return *l;
  return {};
}

}  // namespace tithe::catalogue
