// SPDX-License-Identifier: Apache-2.0
// Ranks' answers to a proposal, in any order: each is accepted, or its sender is named.
#include "engine/peers/reconfiguration.h"
#include "fuzz/targets.h"

namespace tithe::fuzz {
namespace {

// Three bytes each select the sender, the message, and the proposal.
void hear_proposals(ByteView bytes, Rank me) {
  const engine::Member member{.me = me, .world = 4};
  engine::Reconfiguration reconfiguration(member);
  const engine::ControlIdentity identity{.me = me, .world = 4};
  Input out(engine::kControlBytes);
  if (me == 0) reconfiguration.propose("{}", 0);
  for (std::size_t k = 0; k + 2 < bytes.size(); k += 3) {
    const auto peer = static_cast<Rank>(bytes[k] / 16 % 4);
    const std::uint32_t number = bytes[k + 1] % 4;
    const std::uint8_t what = bytes[k + 2];
    if (peer == me) continue;
    Status s;
    switch (bytes[k] % 8) {
      case 0: {
        engine::Fragment f{.number = number,
                           .first = what % 4 * 900U,
                           .whole = 900U * (1 + what / 4 % 4),
                           .piece = std::string(900, ' ')};
        s = reconfiguration.take(peer, f);
        break;
      }
      case 1:
        s = reconfiguration.take(
            peer, engine::Answer{.number = number, .hash = what, .code = what < 200 ? Code{} : Code::kIo});
        break;
      case 2:
        s = reconfiguration.take(
            peer, engine::Decision{.number = number, .after = what, .code = what > 0 ? Code{} : Code::kIo},
            3);
        break;
      case 3:
        if (const auto work = reconfiguration.next_work(); work && work->builds)
          reconfiguration.built({.number = work->number, .hash = 1, .code = what < 200 ? Code{} : Code::kIo});
        break;
      case 4:
        reconfiguration.decide(what);
        break;
      case 5:
        (void)reconfiguration.switch_over(what);
        break;
      case 6:
        if (me == 0 && !reconfiguration.under_way())
          reconfiguration.propose(std::string(what * 10, ' '), number);
        break;
      default:
        if (reconfiguration.decision_pending(peer))
          (void)reconfiguration.write_pending_decision(peer, identity, out);
        else if (reconfiguration.fragments_pending(peer))
          (void)reconfiguration.write_more(peer, identity, out);
    }
    if (!s.ok() && (s.code() != Code::kCorrupt || s.peer() != peer))
      fail("the error of a proposal names another rank than its sender");
    if (!s.ok()) return;  // the session ends
  }
}

Target proposals_target() {
  return {"proposals",
          [](ByteView bytes) {
            for (const Rank me : {0, 2}) hear_proposals(bytes, me);
          },
          {{0, 1, 0, 3, 0, 1, 7, 0, 0, 2, 1, 7, 5, 0, 7}, {3, 0, 0, 23, 0, 0, 17, 1, 1, 39, 0, 0, 4, 0, 7}}};
}

}  // namespace

void add_proposal_targets(std::vector<Target>& targets) { targets.push_back(proposals_target()); }

}  // namespace tithe::fuzz
