// SPDX-License-Identifier: Apache-2.0
// When a fault strikes, and what it does.
#include <algorithm>

#include "base/rng.h"
#include "chaos/network.h"

namespace tithe::chaos {

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
    case FaultKind::kSlow:
      return "slow";
    case FaultKind::kDamage:
      return "damage";
    case FaultKind::kForge:
      return "forge";
    case FaultKind::kClose:
      return "close";
  }
  return "";
}

void Network::count(Rank me, Point point) {
  const std::uint64_t n = ++at(me).counts[static_cast<std::size_t>(point)];
  if (struck_ || me != fault_.who || fault_.round >= 0 || fault_.point != point || n != fault_.count) return;
  strike_locked();
}

void Network::strike() {
  const Lock lock(mutex_);
  ++activity_;
  if (!struck_) strike_locked();
}

void Network::strike_locked() {
  const auto mark = [this] {
    struck_ = true;
    struck_at_ = now_;
  };
  switch (fault_.kind) {
    case FaultKind::kKill:
    case FaultKind::kVanish:
      mark();
      return leave(fault_.who, fault_.kind == FaultKind::kVanish, fault_.draw % 2 == 0);
    case FaultKind::kFreeze:
      mark();
      at(fault_.who).frozen_until = now_ + fault_.lasts;
      return;
    case FaultKind::kLose:
    case FaultKind::kCut:
    case FaultKind::kApart:
      mark();
      for (Rank to = 0; to < static_cast<Rank>(places_.size()); ++to)
        for (auto& [key, lane] : at(to).in)
          if (lost(key.first, to)) std::erase_if(lane.flying, [](const Message& m) { return m.eager; });
      return;
    case FaultKind::kDamage:
      armed_ = true;
      return;
    case FaultKind::kForge:
      mark();
      return forge();
    case FaultKind::kClose:
    case FaultKind::kSlow:
    case FaultKind::kNone:
      return;
  }
}

// The message that damage waits for is changed in a copy.
bool Network::damage(Message& m, Rank from, Rank to, bool control) {
  if (!armed_ || from != fault_.who || control != fault_.control || m.bytes.empty()) return false;
  armed_ = false;
  struck_ = true;
  struck_at_ = now_;
  m.copy.assign(m.bytes.begin(), m.bytes.end());
  const auto at_byte = static_cast<std::size_t>(fault_.draw % m.copy.size());
  changed_ = std::to_string(m.copy.size()) + " bytes to rank " + std::to_string(to);
  switch (fault_.damage) {
    case Damage::kCut:
      m.copy.resize(at_byte);
      changed_ += " cut to " + std::to_string(at_byte);
      break;
    case Damage::kLengthen:
      m.copy.resize(m.copy.size() + 1 + fault_.draw % 64, std::uint8_t{7});
      changed_ += " lengthened to " + std::to_string(m.copy.size());
      break;
    default:
      m.copy[at_byte] ^= static_cast<std::uint8_t>(1U << (fault_.draw >> 32 & 7));
      changed_ += ", a bit of byte " + std::to_string(at_byte) + " flipped";
  }
  if (m.copy.empty()) m.copy.reserve(1);
  return true;
}

// In the name of `who`: something that it said before, or noise.
void Network::forge() {
  Message m{.bytes = {}, .copy = {}, .op = 0, .eager = true, .withdrawn = false, .from = now_, .until = now_};
  if (fault_.damage == Damage::kReplay && !at(fault_.who).last_control.empty()) {
    m.copy = at(fault_.who).last_control;
    changed_ = "the last control message came twice";
  } else {
    m.copy.resize(1 + fault_.draw % 1024);
    for (std::size_t i = 0; i < m.copy.size(); ++i)
      m.copy[i] = static_cast<std::uint8_t>(mix64(fault_.draw + i));
    changed_ = std::to_string(m.copy.size()) + " bytes of noise";
  }
  m.bytes = m.copy;
  if (!at(fault_.other).dead) at(fault_.other).in[{fault_.who, 0}].flying.push_back(std::move(m));
}

}  // namespace tithe::chaos
