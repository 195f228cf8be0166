// SPDX-License-Identifier: Apache-2.0
#pragma once
// Frames from standard input, and what becomes of each to standard output. card_engine.cc has the other end.
//
//   asked                                                         answered
//   'c', u8 on, u8 exact, u8 literal, u8 b, u8 dscp, u32 least    u8 1; 0: refused
//   'w' or 'h' (to wire, to host), u32 bytes, a frame             u8 1, u32 bytes, a frame; u8 0: dropped
//   's'                                                           14 x u32: the counters 0x20 .. 0x54; u64 cycles
//
// Numbers are little-endian.
#include "frames.h"

namespace bench {

inline bool read_exactly(void* to, std::size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }
inline void write_all(const void* from, std::size_t bytes) {
  if (std::fwrite(from, 1, bytes, stdout) != bytes) std::exit(1);
}

template <typename Configure, typename Pass, typename Register, typename Cycles>
int serve_frames(Configure configure, Pass pass, Register read_register, Cycles cycles) {
  for (char request = 0; read_exactly(&request, 1);) {
    if (request == 'c') {
      std::uint8_t r[9];
      if (!read_exactly(r, sizeof r)) return 1;
      CardConfig c;
      c.on = r[0] != 0;
      c.exact = r[1] != 0;
      c.setting = {r[2] ? tithe::inceptionn::kLiteral : tithe::inceptionn::kStrict, r[3]};
      c.dscp = r[4];
      c.least = tithe::wire::get<std::uint32_t>(r + 5);
      const char ok = configure(c) ? 1 : 0;
      write_all(&ok, 1);
    } else if (request == 'w' || request == 'h') {
      std::uint8_t n[4];
      if (!read_exactly(n, sizeof n)) return 1;
      Bytes frame(tithe::wire::get<std::uint32_t>(n));
      if (frame.empty() || !read_exactly(frame.data(), frame.size())) return 1;
      const std::optional<Bytes> out = pass(request == 'h', frame);
      const char came = out ? 1 : 0;
      write_all(&came, 1);
      if (out) {
        tithe::wire::put(n, static_cast<std::uint32_t>(out->size()));
        write_all(n, sizeof n);
        write_all(out->data(), out->size());
      }
    } else if (request == 's') {
      std::uint8_t out[14 * 4 + 8];
      for (unsigned i = 0; i < 14; ++i)
        tithe::wire::put(out + 4 * i, std::uint32_t{read_register(0x20 + 4 * i)});
      tithe::wire::put(out + 14 * 4, std::uint64_t{cycles()});
      write_all(out, sizeof out);
    } else {
      return 1;
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace bench
