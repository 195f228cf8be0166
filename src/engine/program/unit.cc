// SPDX-License-Identifier: Apache-2.0
#include "engine/program/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/rng.h"
#include "tithe/seam/catalogue.h"

namespace tithe::engine {
namespace {

// The number of a part's random draws. It depends on the first tensor's key and on the part's offset in that tensor,
// not on the bucket.
std::uint32_t draw_number(std::string_view key, std::size_t offset) {
  std::uint64_t h = mix64(offset + 1);
  for (const char c : key) h = mix64(h ^ static_cast<unsigned char>(c));
  return static_cast<std::uint32_t>(h);
}

std::vector<feedback::ValueRange> slices(std::span<const TensorLayout> tensors) {
  std::vector<feedback::ValueRange> out;
  for (const TensorLayout& t : tensors) out.push_back(t.slice());
  return out;
}

std::vector<feedback::FeedbackPart> pieces(const Plan& plan, const Program& program, Rank me) {
  std::vector<feedback::FeedbackPart> out;
  const bool gathers = plan.kind == RoundKind::kAllGather;
  for (std::size_t p = 0; p < plan.parts.size(); ++p)
    out.push_back({{plan.parts[p].first, plan.parts[p].n},
                   plan.parts[p].spec,
                   program.parts[p].starts,
                   plan.parts[p].inside,
                   gathers ? std::optional(me) : std::nullopt});
  return out;
}

}  // namespace

Unit::Unit(const Member& member, std::vector<TensorLayout> tensors, Plan plan, std::span<const double> ratios,
           std::span<const feedback::StateKinds> incoming)
    : member_(member),
      tensors_(std::move(tensors)),
      plan_(std::move(plan)),
      plan_hash_(plan_.hash(member.world, member.hosts, member.servers)),
      round_hash_(plan_hash_),
      program_(compile(plan_, member_.place(), ratios, member.tagging, member.makers.get(),
                       may_be_copied(tensors_, plan_))),
      divide_(plan_.kind == RoundKind::kAllGather ? 1.0F : member.divide),
      frames_(program_, member.tagging.trailer()),
      part_values_(tensors_, plan_, program_,
                   member.force_reference || !this_machine().simd ? kReferenceConversions : kSimdConversions),
      feedback_(slices(tensors_), pieces(plan_, program_, member.me), incoming),
      chunks_(static_cast<std::size_t>(program_.chunks)) {
  for (const TensorLayout& t : tensors_) values_ += t.n;
  for (const Part& p : plan_.parts) {
    const auto t = std::find_if(tensors_.begin(), tensors_.end(),
                                [&](const TensorLayout& l) { return p.first < l.first + l.n; });
    draws_.push_back(draw_number(t->key, p.first - t->first));
    const auto coding = [&](const Spec& spec) {
      const Codec& codec = *spec.codec;
      return Coding{.impl = member_.force_reference ? &codec.reference() : &codec.best(this_machine()),
                    .id = id_of(codec),
                    .settings = spec.settings};
    };
    codings_.push_back(coding(p.spec));
    inside_.push_back(p.inside ? coding(*p.inside) : Coding{});
  }
  for (int lane = 0; lane < member_.workers; ++lane) {
    scratch_.push_back(make_arena(program_.scratch_bytes));
    views_.emplace_back(std::max<std::size_t>(program_.most_views, 1));
  }
}

std::string Unit::needs(const Member& member, std::span<const TensorLayout> tensors, const Plan& plan,
                        std::span<const double> ratios) {
  const Program program = compile(plan, member.place(), ratios, member.tagging, member.makers.get(),
                                  may_be_copied(tensors, plan));
  constexpr double kMegabyte = 1e6;
  const double carried =
      static_cast<double>(feedback::ErrorFeedback::bytes(pieces(plan, program, member.me))) / kMegabyte;
  const double frames = static_cast<double>(program.arena_bytes) / kMegabyte;
  const double others = (static_cast<double>(program.scratch_bytes) * member.workers +
                         static_cast<double>(sizeof(float) * program.staged_values)) /
                        kMegabyte;
  const auto largest = std::ranges::max_element(tensors, {}, &TensorLayout::n);
  return fmt::format(
      "{:.1f} MB in addition to the gradients of {} tensors (the largest is '{}' with {} values): {:.1f} MB "
      "for residuals, {:.1f} MB for frames, {:.1f} MB for copies and scratch",
      carried + frames + others, tensors.size(), largest->key, largest->n, carried, frames, others);
}

void Unit::use_ratio(double ratio) {
  for (std::size_t i = 0; i < plan_.parts.size(); ++i)
    if (plan_.parts[i].scheduled) codings_[i].settings = with_ratio(plan_.parts[i].spec, ratio);
  round_hash_ = mix64(plan_hash_ ^ std::bit_cast<std::uint64_t>(ratio));
}

void Unit::touch(std::span<const Tensor> bucket) {
  frames_.touch();
  // The communication lane runs few steps, so its scratch memory is not touched.
  for (int lane = 0; lane < std::max(1, member_.workers - 1); ++lane)
    engine::touch(scratch_[static_cast<std::size_t>(lane)], program_.scratch_bytes);
  if (std::ranges::all_of(bucket, [](const Tensor& t) { return t.data != nullptr || t.n == 0; }))
    part_values_.begin(bucket);
}

void Unit::begin(std::span<const Tensor> bucket, std::uint32_t round) {
  if (is_on_device())
    begin_on_device();
  else
    part_values_.begin(bucket);
  round_ = round;
  finite_ = true;
  excessive_ = false;
  for (ChunkState& c : chunks_) c = {};
}

void Unit::end() {
  if (!finite_) fill_with_nan();
}

double Unit::commit(bool keep, bool for_good) {
  const double forgotten = keep ? feedback_.commit(for_good) : 0;
  if (!keep && finite_) fill_with_nan();
  if (for_good) feedback_.lend_next();
  frames_.lend();
  part_values_.lend();
  return forgotten;
}

}  // namespace tithe::engine
