// SPDX-License-Identifier: Apache-2.0
// Prelude of kernels for programs whose blocks have variable sizes (emit_cuda_lengths.h).

#if defined(__CUDA_ARCH__)
DEV void atomic_or(U* to, U v) { atomicOr(to, v); }
#else
DEV void atomic_or(U* to, U v) { __atomic_fetch_or(to, v, __ATOMIC_RELAXED); }
#endif
// Sets bits in the words of a block that several threads assemble; the words start as zeros.
DEV void or_bits(U* words, U bit, U code, int bits) {
  if (bits == 0) return;
  const uint64_t both = uint64_t(code) << (bit % 32);
  atomic_or(words + bit / 32, U(both));
  if (bit % 32 + bits > 32) atomic_or(words + bit / 32 + 1, U(both >> 32));
}
DEV U bits_at(const uint8_t* from, U bit, int bits) {
  const int shift = int(bit % 8);
  uint64_t word = 0;
  for (int k = 0; 8 * k < shift + bits; ++k) word |= uint64_t(from[bit / 8 + k]) << (8 * k);
  return bits == 0 ? 0 : U(word >> shift & ((uint64_t(1) << bits) - 1));
}

// ---- Offsets of parts of different sizes: one thread block, in which each thread scans a slice
typedef Rows<uint64_t> Scan;
DEV void scan_slice(const U* sizes, uint64_t count, Scan& s, U thread) {
  uint64_t sum = 0;
  UNROLL for (uint64_t k = count * thread / kThreads; k < count * (thread + 1) / kThreads; ++k) {
    sum += sizes[k];
  }
  s.of[thread] = sum;
}
DEV void scan_before(const Call*, Scan& s, uint64_t, U thread) { put_rows<Adds>(s, thread); }
// The last thread returns the total.
DEV uint64_t scan_places(const U* sizes, uint64_t* places, uint64_t count, const Scan& s, U thread) {
  uint64_t at = before<Adds>(s, thread);
  for (uint64_t k = count * thread / kThreads; k < count * (thread + 1) / kThreads; ++k) {
    places[k] = at;
    at += sizes[k];
  }
  return at;
}
