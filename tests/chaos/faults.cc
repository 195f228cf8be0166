// SPDX-License-Identifier: Apache-2.0
// The time and the effect of faults.
#include <algorithm>
#include <functional>
#include <numeric>

#include "base/rng.h"
#include "chaos/network.h"

namespace tithe::chaos {

constexpr std::ptrdiff_t kHeader = 64;  // of a frame

std::string_view name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone:
      return "none";
    case FaultKind::kKill:
      return "kill";
    case FaultKind::kVanish:
      return "vanish";
    case FaultKind::kFreeze:
      return "freeze";
    case FaultKind::kLose:
      return "lose";
    case FaultKind::kCut:
      return "cut";
    case FaultKind::kApart:
      return "apart";
    case FaultKind::kHalves:
      return "halves";
    case FaultKind::kSlow:
      return "slow";
    case FaultKind::kDamage:
      return "damage";
    case FaultKind::kLate:
      return "late";
    case FaultKind::kForge:
      return "forge";
    case FaultKind::kClose:
      return "close";
    case FaultKind::kDriver:
      return "driver";
  }
  return "";
}

void Network::count(int process, Point point) {
  const Lock lock(mutex_);
  count_locked(process, point);
}

void Network::count_locked(int process, Point point) {
  const std::uint64_t n = ++at(process).counts[static_cast<std::size_t>(point)];
  for (std::size_t k = 0; k < faults_.size(); ++k)
    if (const Fault& f = faults_[k];
        !strikes_[k].struck && process == f.who && f.round < 0 && f.point == point && n == f.count)
      strike_locked(k);
}

void Network::strike(std::size_t fault) {
  const Lock lock(mutex_);
  ++activity_;
  if (!strikes_[fault].struck) strike_locked(fault);
}

void Network::strike_locked(std::size_t fault) {
  const Fault& f = faults_[fault];
  const auto mark = [&] {
    strikes_[fault].struck = true;
    strikes_[fault].at = now_;
    for (std::size_t k = 1; fault == 0 && k < faults_.size(); ++k)
      if (faults_[k].with_first && !strikes_[k].struck) strike_locked(k);
  };
  switch (f.kind) {
    case FaultKind::kKill:
    case FaultKind::kVanish:
      mark();
      if (!at(f.who).dead) end(f.who, f.kind == FaultKind::kVanish, f.draw % 2 == 0);
      return;
    case FaultKind::kFreeze:
      mark();
      at(f.who).frozen_until = now_ + f.lasts;
      return;
    case FaultKind::kLose:
    case FaultKind::kCut:
    case FaultKind::kApart:
    case FaultKind::kHalves:
      mark();
      for (auto& [number, group] : groups_)
        for (End& to : group.ends)
          for (auto& [key, lane] : to.in)
            if (cut(group.at(key.first).process, to.process, true))
              std::erase_if(lane.flying, [](const Message& m) { return m.eager; });
      return;
    case FaultKind::kDamage:
    case FaultKind::kLate:
      strikes_[fault].armed = true;
      return;
    case FaultKind::kForge:
      mark();
      return forge(f);
    case FaultKind::kDriver:
      return mark();
    case FaultKind::kClose:
    case FaultKind::kSlow:
    case FaultKind::kNone:
      return;
  }
}

// Modifies a copy of the message that the fault selects.
bool Network::damage(Message& m, const End& from, const End& to, bool control) {
  std::size_t k = 0;
  while (k < faults_.size() && !(strikes_[k].armed && faults_[k].kind == FaultKind::kDamage &&
                                 from.process == faults_[k].who && control == faults_[k].control))
    ++k;
  if (k == faults_.size() || m.bytes.empty()) return false;
  const Fault& fault = faults_[k];
  strikes_[k] = {.struck = true, .armed = false, .at = now_};
  m.copy.assign(m.bytes.begin(), m.bytes.end());
  const auto at_byte = static_cast<std::size_t>(fault.draw % m.copy.size());
  changed_ = std::to_string(m.copy.size()) + " bytes to rank " + std::to_string(to.rank);
  switch (fault.damage) {
    case Damage::kCut:
      m.copy.resize(at_byte);
      changed_ += " cut to " + std::to_string(at_byte);
      break;
    case Damage::kLengthen:
      m.copy.resize(m.copy.size() + 1 + fault.draw % 64, std::uint8_t{7});
      changed_ += " lengthened to " + std::to_string(m.copy.size());
      break;
    default:
      m.copy[at_byte] ^= static_cast<std::uint8_t>(1U << (fault.draw >> 32 & 7));
      changed_ += ", a bit of byte " + std::to_string(at_byte) + " flipped";
  }
  if (m.copy.empty()) m.copy.reserve(1);
  return true;
}

// Replaces the next frame by an old one: the most similar frame that `who` sent to the same process on the same
// channel in an earlier group.
bool Network::late(Message& m, End& from, const End& to, Channel channel) {
  std::size_t k = 0;
  while (k < faults_.size() && !(faults_[k].kind == FaultKind::kLate && from.process == faults_[k].who)) ++k;
  if (k == faults_.size()) return false;
  const std::vector<std::uint8_t>* best = nullptr;
  std::ptrdiff_t alike = -1;
  for (auto& [number, group] : groups_) {
    const auto before = std::ranges::find(group.ends, from.process, &End::process);
    if (!strikes_[k].armed || before == group.ends.end() || &*before == &from) continue;
    for (const std::vector<std::uint8_t>& old : before->frames[{to.process, channel}]) {
      if (old.size() != m.bytes.size()) continue;
      const std::ptrdiff_t n = std::inner_product(old.begin(), old.begin() + kHeader, m.bytes.begin(),
                                                  std::ptrdiff_t{0}, std::plus<>(), std::equal_to<>());
      if (n > alike) best = &old, alike = n;
    }
  }
  if (best == nullptr) {
    from.frames[{to.process, channel}].emplace_back(m.bytes.begin(), m.bytes.end());
    return false;
  }
  strikes_[k] = {.struck = true, .armed = false, .at = now_};
  m.copy = *best;
  changed_ =
      "an earlier frame of " + std::to_string(m.copy.size()) + " bytes to rank " + std::to_string(to.rank);
  return true;
}

// Sends a message in the name of `who` on the newest line to `other`: one of its earlier messages, of any group, or
// noise.
void Network::forge(const Fault& fault) {
  Message m{.bytes = {}, .copy = {}, .op = 0, .eager = true, .withdrawn = false, .from = now_, .until = now_};
  std::vector<const End*> senders;
  End *from = nullptr, *to = nullptr;
  for (auto& [number, group] : groups_) {
    const auto who = std::ranges::find(group.ends, fault.who, &End::process);
    const auto other = std::ranges::find(group.ends, fault.other, &End::process);
    if (who == group.ends.end() || other == group.ends.end()) continue;
    if (!who->last_control.empty()) senders.push_back(&*who);
    if (!other->over) from = &*who, to = &*other;
  }
  if (fault.damage == Damage::kReplay && !senders.empty()) {
    m.copy = senders[fault.draw % senders.size()]->last_control;
    changed_ = "the last control message came twice";
  } else {
    m.copy.resize(1 + fault.draw % 1024);
    for (std::size_t i = 0; i < m.copy.size(); ++i)
      m.copy[i] = static_cast<std::uint8_t>(mix64(fault.draw + i));
    changed_ = std::to_string(m.copy.size()) + " bytes of noise";
  }
  m.bytes = m.copy;
  if (to != nullptr) to->in[{from->rank, 0}].flying.push_back(std::move(m));
}

}  // namespace tithe::chaos
