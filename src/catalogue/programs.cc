// SPDX-License-Identifier: Apache-2.0
#include "catalogue/programs.h"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "tithe/seam/catalogue.h"

namespace tithe::catalogue {
namespace {

// A linked list that only grows at its head, so readers need no lock.
std::atomic<const Listed*> newest{nullptr};
std::mutex one_at_a_time;  // serialises writers

}  // namespace

const Listed* newest_program() { return newest.load(std::memory_order_acquire); }

bool is_file(std::string_view codec) {
  return codec.find('/') != std::string_view::npos || codec.ends_with(lang::kEnding);
}

Result<const lang::LoadedProgram*> load(const std::string& path) {
  Result<lang::Source> found = lang::read_source(path);
  if (!found.ok()) return found.status();
  const lang::Source& source = *found;
  const std::lock_guard lock(one_at_a_time);
  const Listed known =
      find_program([&](const Codec& codec, CodecId) { return codec.program->source.text == source.text; });
  if (known.codec != nullptr) return known.codec->program;
  lang::Problems problems;
  std::unique_ptr<lang::LoadedProgram> made = lang::compile(source, problems);
  if (made == nullptr) return Status(Code::kInvalid, "codec program:\n" + problems.text(source));
  const auto id =
      CodecId{static_cast<std::uint16_t>(kFirstLoadedId + made->hash % (0x10000 - kFirstLoadedId))};
  if (const Codec* other = find_codec(id))
    return Status(
        Code::kUnsupported,
        fmt::format("{}: its id collides with the id of {}: change a word of its doc", path, other->name));
  const lang::LoadedProgram* stays = made.release();
  newest.store(new Listed{&stays->codec, id, newest_program()}, std::memory_order_release);
  return stays;
}

}  // namespace tithe::catalogue
