// SPDX-License-Identifier: Apache-2.0
#pragma once
// The frames of a round: one slot of memory for each frame that a program makes or receives, and the state of the
// frame in it.
#include <span>
#include <vector>

#include "engine/program/arena.h"
#include "engine/program/program.h"
#include "tithe/seam/frame.h"

namespace tithe::engine {

class Frames {
 public:
  struct State {
    std::uint8_t flags = 0;
    std::uint16_t parts = 1;
    Range makers = {};      // the ranks whose payloads it contains (Program::indices); the first encoded it
    std::size_t bytes = 0;  // of header and payload
    bool known = true;      // made on this rank, or checked
  };
  // trailer: number of bytes after each payload.
  Frames(const Program& program, std::size_t trailer)
      : program_(program),
        trailer_(trailer),
        arena_(make_arena(program.arena_bytes)),
        states_(program.slots.size()),
        numbers_(program.slots.size()) {}

  void touch() { engine::touch(arena_, program_.arena_bytes); }
  void lend() { tithe::mark_discardable(arena_.get(), program_.arena_bytes); }  // between rounds

  State& operator[](int slot) { return states_[static_cast<std::size_t>(slot)]; }
  const State& operator[](int slot) const { return states_[static_cast<std::size_t>(slot)]; }

  Bytes memory(int slot) const {
    const Slot& s = program_.slots[static_cast<std::size_t>(slot)];
    return {arena_.get() + s.offset, s.bytes};
  }
  // The memory for a payload: without header and trailer.
  Bytes room(int slot) const {
    const Bytes m = memory(slot);
    return m.subspan(kFrameHeaderBytes, m.size() - kFrameHeaderBytes - trailer_);
  }
  Bytes payload(int slot) const { return memory(slot).first((*this)[slot].bytes).subspan(kFrameHeaderBytes); }
  ByteView whole(int slot) const { return memory(slot).first((*this)[slot].bytes + trailer_); }
  void received(int slot, std::size_t bytes) {
    (*this)[slot].bytes = bytes - std::min(bytes, trailer_);
    (*this)[slot].known = false;
  }

  std::span<const Rank> makers(int slot) const {
    const Range r = (*this)[slot].makers;
    return std::span(program_.indices).subspan(r.first, r.count);
  }
  Rank maker(int slot) const { return makers(slot)[0]; }
  // Requires a frame that was made on this rank or checked.
  ParsedFrame parsed(int slot) const {
    const State& s = (*this)[slot];
    return {{.flags = s.flags, .source = static_cast<std::uint16_t>(maker(slot)), .parts = s.parts},
            payload(slot)};
  }
  // The numbers of tagged frames in a slot must rise. Returns false if `number` was used.
  bool take_number(int slot, std::uint64_t number) {
    std::uint64_t& last = numbers_[static_cast<std::size_t>(slot)];
    if (number <= last) return false;
    last = number;
    return true;
  }

 private:
  const Program& program_;
  const std::size_t trailer_;
  Arena arena_;
  std::vector<State> states_;           // by slot
  std::vector<std::uint64_t> numbers_;  // by slot: the number of its last tagged frame
};

}  // namespace tithe::engine
