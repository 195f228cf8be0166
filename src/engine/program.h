// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Program is the plan of one bucket as steps with successors: the graphs of all parts and phases in one list,
// with everything that an engine needs to know beforehand. Built once per layout, replayed every round.
//
// Why: a strategy's graph speaks of chunks and frames and knows neither sizes nor laws. Here each node becomes one or
// two steps, each frame a slot of memory of fixed size, each law (laws.h) the steps that it needs; so a round decides
// nothing, looks nothing up and allocates nothing: it counts down `waits` and runs what reaches zero.
//
// Threads  none: built by the caller of the first sync() of a layout, constant afterwards, read by all lanes.
// Owners   a Unit owns its program; slots are offsets into the Unit's memory. A slot holds one frame per round, and
//          belongs to the step that writes it until the steps that wait for that one read it.
// Order    what the graph says, and: sends of a part to one peer leave one after the other; a phase touches a chunk
//          once the phase before has stored it; a part is unloaded once all its chunks are stored.
// Failure  none: the parts have passed choose_laws. What ranks may not agree on is compared before (Card).
#include <cstdint>
#include <span>
#include <vector>

#include "engine/tagging.h"
#include "tithe/plan.h"
#include "tithe/schedule.h"

namespace tithe::engine {

enum class StepKind : std::uint8_t {
  kLoad,    // part: gradients into the flat buffer where they are not there already; clipping, momentum
  kOwn,     // chunk: this rank's payload, before others' payloads come to it (all laws but decode)
  kEncode,  // chunk: the frame
  kSend,
  kRecv,
  kCheck,  // a received frame: whole, and what was expected; where one step alone reads a small one, it does this
  kMerge,
  kStore,
  kUnload,  // part: results out of the flat buffer where tensors lie elsewhere
};

struct Range {  // of Program::indices
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct Step {
  StepKind kind{};
  std::uint8_t phase = 0;
  bool direct = false;           // encode: nothing was merged, so the payload is written where it leaves
  Cover cover = Cover::kHeader;  // encode, check: what the frame's tag speaks for, where frames have tags
  int part = 0;
  Chunk chunk = 0;
  Rank peer = -1;
  int slot = -1;             // the frame that it writes, checks or sends
  int own_slot = -1;         // concat: where the own payload waits to be joined
  int before = 0;            // merge: so many of its frames, the first ones, come from lower ranks
  int waits = 0;             // steps that come before it
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

struct PartLayout {
  std::vector<Law> laws;  // by phase
  int chunks = 1;
  int first_chunk = 0;              // number of its chunk 0 among all chunks of the program
  std::vector<std::size_t> starts;  // of chunk c within the part; chunks + 1 entries
  std::size_t at(Chunk c) const { return starts[static_cast<std::size_t>(c)]; }
  std::size_t size(Chunk c) const { return at(c + 1) - at(c); }
};

struct Program {
  std::vector<Step> steps;
  std::vector<int> indices;
  std::vector<int> waits;     // Step::waits, by step
  std::vector<int> first;     // steps that wait for none
  std::vector<Step> checks;   // of frames that their reader checks: the kCheck that is no step of its own
  std::vector<int> check_of;  // by slot: its number among checks, or -1
  std::vector<Slot> slots;
  std::vector<PartLayout> parts;
  int chunks = 0;                 // of all parts
  std::size_t arena_bytes = 0;    // 64-byte aligned
  std::size_t scratch_bytes = 0;  // for one step
  std::size_t most_views = 0;     // payloads that one step may read
};

// The plan's parts must have passed choose_laws. Memory fits every one of `ratios`, and the codecs' own.
Program compile(const Plan& plan, Rank me, int world, std::span<const double> ratios,
                const Tagging& tagging = {});

}  // namespace tithe::engine
