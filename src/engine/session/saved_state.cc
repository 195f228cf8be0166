// SPDX-License-Identifier: Apache-2.0
#include "engine/session/saved_state.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <set>

#include "base/text.h"

namespace tithe::engine {
namespace {

constexpr std::uint32_t kStateMagic = 0x53544954;  // "TITS" in file order
constexpr std::uint32_t kStateVersion = 8;

std::uint64_t checksum(ByteView bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace

Status check_members(const std::vector<std::string>& members, int world) {
  if (members.empty()) return {};
  if (members.size() != static_cast<std::size_t>(world))
    return {
        Code::kInvalid,
        fmt::format("members has {} names for {} ranks: give one name for each rank, in the order of ranks",
                    members.size(), world)};
  std::set<std::string_view> seen;
  for (const std::string& name : members) {
    if (name.empty() || name.size() > kMaxMemberBytes)
      return {Code::kInvalid, fmt::format("members: a name has {} bytes; a name must have 1 to {}",
                                          name.size(), kMaxMemberBytes)};
    if (!seen.insert(name).second)
      return {Code::kInvalid, fmt::format("members: '{}' occurs twice: give each rank a different name",
                                          printable(name, kMaxMemberBytes))};
  }
  return {};
}

std::vector<std::uint8_t> save(const SavedHead& head, const feedback::ResidualStore& store, bool residuals) {
  ArchiveWriter out;
  out.number(kStateMagic);
  out.number(kStateVersion);
  out.number(static_cast<std::uint32_t>(head.rank));
  out.number(static_cast<std::uint32_t>(head.world));
  out.number(head.round);
  out.number(head.job);
  out.text(head.codec);
  out.text(head.opened);
  out.text(head.decided);
  out.text(head.link);
  out.text(head.schedule);
  out.number(head.schedule_state.learning_rate);
  out.number(head.schedule_state.min_loss);
  out.number(head.schedule_state.steps);
  out.number(std::uint64_t{head.members.size()});
  for (const std::string& name : head.members) out.text(name);
  feedback::write(store, out, residuals);
  out.number(checksum(out.bytes()));
  return out.take();
}

std::uint64_t checksum_of(ByteView state) {
  return wire::get<std::uint64_t>(state.last(sizeof(std::uint64_t)).data());
}

// Reads the fields in the order of save(). The checksum comes first: if it is wrong, no field is read.
Status load(ByteView bytes, SavedHead& head, feedback::ResidualStore::Map& saved) {
  const Status corrupt(Code::kCorrupt, "the bytes are not a saved state of a session");
  if (bytes.size() < sizeof(std::uint64_t)) return corrupt;
  const ByteView body = bytes.first(bytes.size() - sizeof(std::uint64_t));
  if (checksum(body) != checksum_of(bytes)) return corrupt;
  ArchiveReader in(body);
  if (in.number<std::uint32_t>() != kStateMagic) return corrupt;
  const auto version = in.number<std::uint32_t>();
  if (version != kStateVersion)
    return {Code::kMismatch, "the saved state has version " + std::to_string(version) +
                                 ", this build reads " + std::to_string(kStateVersion)};
  head.rank = static_cast<Rank>(in.number<std::uint32_t>());
  head.world = static_cast<int>(in.number<std::uint32_t>());
  head.round = in.number<std::uint64_t>();
  head.job = in.number<std::uint64_t>();
  head.codec = in.text();
  head.opened = in.text();
  head.decided = in.text();
  head.link = in.text();
  head.schedule = in.text();
  head.schedule_state.learning_rate = in.number<double>();
  head.schedule_state.min_loss = in.number<double>();
  head.schedule_state.steps = in.number<std::uint32_t>();
  const auto members = in.number<std::uint64_t>();
  for (std::uint64_t k = 0; k < members && in.whole(); ++k) head.members.push_back(in.text());
  if (head.rank < 0 || head.rank >= head.world || !check_members(head.members, head.world).ok())
    return corrupt;
  return feedback::read(in, saved);
}

}  // namespace tithe::engine
