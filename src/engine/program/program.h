// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Program is the plan of one bucket as steps with successors: the graphs of all parts and phases in one list,
// with everything that an engine needs to know beforehand. Built once per layout, replayed every round.
//
// Templates (template.h): what does not depend on sizes is worked out once for all parts that are alike in it.
// Why: a strategy's graph speaks of chunks and frames and knows neither sizes nor laws. Here each node becomes one or
// two steps, each frame a slot of memory of fixed size, each law (laws.h) the steps that it needs; so a round decides
// nothing, looks nothing up and allocates nothing: it counts down `waits` and runs what reaches zero.
//
// Threads  none: built by the caller of the first sync() of a layout, constant afterwards, read by all lanes.
// Owners   a Unit owns its program; slots are offsets into the Unit's memory. A slot holds one frame per round, and
//          belongs to the step that writes it until the steps that wait for that one read it. Two slots may have the
//          same memory: all that is done with the one is over before the other is received.
// Window   parts begin in the plan's order, and one only when all parts up to PartLayout::begins_after are over: so it
//          may have their memory, and a bucket needs no more than three of its largest parts do, or least_window(). It
//          cannot deadlock: take the first part that is not over everywhere. All before it are over on all ranks, so
//          it has begun on all, its receives are posted, and nothing that it waits for waits for a later one. A
//          receive that takes the memory of a frame that leaves (template.cc) is posted once that has left: what it
//          receives was made of that frame, which has come to others by then.
// Urgency  a part's priority; of equals, what leads to a send (ready.h says why).
// Stages   a part whose hosts are treated apart has an exchange inside them first, then the phases of its codec between
//          them.
// Order    what the graph says, and: sends of a part to one peer leave one after the other; a phase touches a chunk
//          once the phase before has stored it. The step that touches a chunk first brings its values in, and the last
//          phase's store puts the result where the caller has it: no chunk waits for others of its part, unless
//          clipping needs the norm of them all.
// Failure  none: the parts have passed choose_laws. Things that ranks may not agree on are compared before (Card).
#include <cstdint>
#include <span>
#include <vector>

#include "engine/program/makers.h"
#include "engine/program/tagging.h"
#include "tithe/schedule.h"
#include "tithe/seam/plan.h"

namespace tithe::engine {

enum class StepKind : std::uint8_t {
  kLoad,  // values into the flat buffer, momentum: of a chunk whose first user waits for a message; of a whole
          // part (chunk kWholePart) where they are clipped
  kOwn,   // chunk: this rank's payload, before others' payloads come to it (all laws but decode)
  kEncode,  // chunk: the frame
  kSend,
  kRecv,
  kCheck,  // a received frame: whole, and what was expected; where one step alone reads it, and it is small or that
           // goes through it in order, that step does this
  kMerge,
  kStore,
};

inline constexpr Chunk kWholePart = -1;
// Bytes of frames, and of values that are copied.
inline constexpr std::size_t kLeastWindow = std::size_t{1} << 26;

struct Range {  // of Program::indices
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct Step {
  StepKind kind{};
  Stage stage = Stage::kBetween;
  std::uint8_t phase = 0;  // of the stage's codec
  bool loads = false;      // it is the first to touch its chunk, so it brings the values in
  bool direct = false;     // encode: nothing was merged, so the payload is written where it leaves
  bool onto = false;       // merge: the own values are added to its first frame, where that was received
  Cover cover = Cover::kHeader;  // encode, check, onto: what a frame's tag speaks for
  int part = 0;
  Chunk chunk = 0;
  Rank peer = -1;
  int slot = -1;             // the frame that it writes, checks or sends
  int own_slot = -1;         // concat: where the own payload waits to be joined
  int before = 0;            // merge: so many of its frames, the first ones, come from lower ranks
  int waits = 0;             // steps that come before it
  std::uint32_t level = 0;   // which of Program's levels it is on, of compute or mail
  std::uint32_t place = 0;   // there
  std::uint32_t weight = 0;  // of a step of computing: values that it reads or writes, over all its frames
  Range frames;              // slots: merge, store; encode under the concat law: what was merged
  Range makers;              // encode, check: the ranks whose payloads the frame holds; the first made it
  Range next;                // steps that wait for it
};

// Room in the arena for one frame.
struct Slot {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

// Steps that are equally urgent, in the order in which they run where several are ready.
struct Level {
  std::int64_t urgency = 0;  // comparable between programs
  std::vector<int> steps;
};

// This rank's turn at a chunk: its place among the ranks that may lead it, which are those that have values of their
// own and encode it for others than their host's; and how many payloads come together in the chunk's result.
struct Contribution {
  int at = -1;  // -1: it does not
  int of = 1;
  int payloads = 1;
};

struct PartLayout {
  std::vector<Law> laws;                    // by phase of the codec between hosts
  std::vector<Contribution> contributions;  // by chunk
  int chunks = 1;
  int first_chunk = 0;     // number of its chunk 0 among all chunks of the program
  int begins_after = -1;   // all parts up to this one
  std::vector<int> first;  // steps that wait for none
  std::size_t steps = 0;
  std::size_t staged_at = 0;        // values: where its own are copied to, if they are
  std::vector<std::size_t> starts;  // of chunk c within the part; chunks + 1 entries
  std::size_t at(Chunk c) const { return starts[static_cast<std::size_t>(c)]; }
  Contribution contribution(Chunk c) const { return contributions[static_cast<std::size_t>(c)]; }
  std::size_t size(Chunk c) const { return at(c + 1) - at(c); }
};

struct Program {
  std::vector<Step> steps;
  std::vector<int> indices;
  std::vector<int> waits;                          // Step::waits, by step
  std::vector<Level> compute_levels, mail_levels;  // the most urgent first; mail: sends and receives
  std::vector<Step> checks;   // of frames that their reader checks: the kCheck that is no step of its own
  std::vector<int> check_of;  // by slot: its number among checks, or -1
  std::vector<Slot> slots;
  std::vector<PartLayout> parts;
  int chunks = 0;               // of all parts
  std::size_t arena_bytes = 0;  // 64-byte aligned
  std::size_t staged_values = 0;
  std::size_t scratch_bytes = 0;  // for one step
  std::size_t most_views = 0;     // payloads that one step may read
};

// The plan's parts must have passed choose_laws. Memory fits every one of `ratios`, and the codecs' own. `known`: what
// was worked out for other layouts at the same place; nullptr: nothing. `copied`, by part: its values may lie where
// codecs cannot use them; empty: none.
Program compile(const Plan& plan, const Place& at, std::span<const double> ratios,
                const Tagging& tagging = {}, KnownMakers* known = nullptr,
                const std::vector<bool>& copied = {});

class Templates;
// For those who ask what is done and not what it makes, such as a simulator: steps have no makers and no `before`. The
// parts are of one strategy, of which this rank draws `graph`; any_merge: some rank's graph merges frames. `copied`: of
// all parts.
Program compile_unverified(const Plan& plan, const Place& at, const Graph& graph, bool any_merge,
                           Templates& templates, bool copied = false);

// A part's need while it is under way, in bytes of frames: the same on all ranks (Program, "Window").
std::size_t bytes_under_way(const Part& part, const StrategyCost& cost, std::span<const double> ratios = {});

}  // namespace tithe::engine
