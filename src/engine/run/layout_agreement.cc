// SPDX-License-Identifier: Apache-2.0
#include "engine/run/layout_agreement.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/run/operations.h"

namespace tithe::engine {

void LayoutAgreement::write_card(Job& job) {
  job.card.job = announced_job_;
  job.card_frame = make_arena(kControlBytes);
  job.card_bytes =
      engine::write_card(job.card, identity_of(state_.member), {job.card_frame.get(), kControlBytes});
}

Announcement LayoutAgreement::next_entry(Job& job, std::uint32_t round) {
  Announcement entry = entry_of(job.card);
  entry.ended = state_.rounds.ended();
  entry.place = state_.order.next_place(entry.ended);
  entry.round = round;
  entry.job = announced_job_;
  if (!job.shown) {
    job.card.ended = entry.ended;
    job.card.place = entry.place;
    write_card(job);
  }
  return entry;
}

Announcement LayoutAgreement::end_entry() {
  const std::uint64_t ended = state_.rounds.ended();
  return {.ended = ended,
          .place = state_.order.next_place(ended),
          .is_end = true,
          .round = state_.rounds.round(),
          .job = announced_job_};
}

Status LayoutAgreement::take_card(Rank peer, Card& card) {
  Peer& p = state_.peer(peer);
  const std::uint32_t next = p.first_card + static_cast<std::uint32_t>(p.cards.size());
  if (card.number != next)
    return {Code::kCorrupt,
            fmt::format("rank {} sent the description of layout {}, its next layout is {}", peer, card.number,
                        next),
            peer};
  if (p.cards.size() == kMaxCardsAhead)
    return {Code::kCorrupt,
            fmt::format("rank {} sent descriptions of more than {} layouts that this rank has not seen", peer,
                        kMaxCardsAhead),
            peer};
  p.cards.push(std::move(card));
  return {};
}

// Every rank sends cards in the order of their numbers, so the front of each queue belongs to layout `matched_`.
// Agreed cards leave the queues.
Status LayoutAgreement::match_cards() {
  for (; matched_ < state_.queue.jobs().size(); ++matched_) {
    Job& job = state_.queue.job(matched_);
    const auto missing = [&](Rank r) { return state_.peer(r).cards.empty(); };
    if (!job.shown || std::ranges::any_of(state_.others, missing)) return {};
    std::vector<Card> all(state_.peers.size());
    for (std::size_t r = 0; r < all.size(); ++r)
      all[r] = static_cast<Rank>(r) == state_.member.me ? job.card : state_.peers[r].cards.front();
    TITHE_TRY(compare_cards(all));
    job.agreed = true;
    if (job_ == 0) job_ = all[0].proposed_job;
    for (const Rank r : state_.others) {
      state_.peer(r).cards.pop();
      ++state_.peer(r).first_card;
    }
  }
  return {};
}

}  // namespace tithe::engine
