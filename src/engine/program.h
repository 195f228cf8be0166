// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Program is the plan of one bucket as steps with successors: the graphs of all parts and phases in one list,
// with everything that an engine needs to know beforehand. Built once per layout, replayed every round.
#include <cstdint>
#include <span>
#include <vector>

#include "tithe/frame.h"
#include "tithe/plan.h"
#include "tithe/schedule.h"

namespace tithe::engine {

enum class StepKind : std::uint8_t {
  kLoad,    // part: gradients into the flat buffer where they are not there already; clipping, momentum
  kOwn,     // chunk: this rank's payload, before others' payloads come to it (all laws but decode)
  kEncode,  // chunk: the frame
  kSend,
  kRecv,
  kCheck,  // a received frame: whole, and what was expected
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
  int slot = -1;      // the frame that it writes, checks or sends
  int own_slot = -1;  // concat: where the own payload waits to be joined
  int before = 0;     // merge: so many of its frames, the first ones, come from lower ranks
  int waits = 0;      // steps that come before it
  Range frames;       // slots: merge, store; encode under the concat law: what was merged
  Range makers;       // encode, check: the ranks whose payloads the frame holds; the first made it
  Range next;         // steps that wait for it
};

// A place in the arena for one frame.
struct Slot {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

struct PartLayout {
  std::vector<Law> laws;  // by phase
  int chunks = 1;
  int first_chunk = 0;              // number of its chunk 0 among all chunks of the program
  std::vector<std::size_t> starts;  // of chunk c within the part; chunks + 1 entries
  std::vector<std::size_t> memory;  // of chunk c within the unit's memory, bytes; chunks + 1 entries
  std::size_t at(Chunk c) const { return starts[static_cast<std::size_t>(c)]; }
  std::size_t size(Chunk c) const { return at(c + 1) - at(c); }
};

struct Program {
  std::vector<Step> steps;
  std::vector<int> indices;
  std::vector<Slot> slots;
  std::vector<PartLayout> parts;
  int chunks = 0;                 // of all parts
  std::size_t arena_bytes = 0;    // 64-byte aligned
  std::size_t scratch_bytes = 0;  // for one step
  std::size_t memory_bytes = 0;   // of all parts, in their order (Codec::memory)
  std::size_t most_views = 0;     // payloads that one step may read
};

// What tags cover, by the word in SessionOptions::authenticate. kInvalid for another word.
enum class Authenticate : std::uint8_t { kAuto, kHeaders, kPayloads };
Result<Authenticate> parse_authenticate(std::string_view word);

// How the frames of a session are tagged, if at all.
struct Tagging {
  bool on = false;
  Authenticate what = Authenticate::kAuto;
  std::size_t trailer() const { return on ? kFrameTrailerBytes : 0; }
  // Of a frame for n values whose payload has at most `bound` bytes; the same on all ranks.
  Cover cover(std::size_t bound, std::size_t n) const;
};

// The laws by which the phases of a part combine: the strategy's first that the codec's phase knows.
// kInvalid where there is none; kUnsupported where phases stand in an order that no engine can run.
Result<std::vector<Law>> choose_laws(const Spec& spec, const Strategy& strategy);

// The plan's parts must have passed choose_laws. Memory fits every one of `ratios`, and the codecs' own.
Program compile(const Plan& plan, Rank me, int world, std::span<const double> ratios,
                const Tagging& tagging = {});

}  // namespace tithe::engine
