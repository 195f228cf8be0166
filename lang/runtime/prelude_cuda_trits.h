// SPDX-License-Identifier: Apache-2.0
// Prelude of kernels for programs that send trits (emit_cuda.h): five per byte, with runs of ones shortened, as in
// lang/run/codings.h. The code of a run is written by the thread of the run's last byte.

enum { kOnes = 121, kFirstRun = 243, kLongest = 14, kBytesOf = 1024, kOwnBytes = kBytesOf / kThreads };
struct Bytes {
  Rows<U> count;
  Rows<uint64_t> last;
};
DEV uint64_t fives_of(uint64_t n) { return (n + 4) / 5; }
DEV uint64_t own_byte(uint64_t at, U thread) { return at * kBytesOf + uint64_t(thread) * kOwnBytes; }
DEV void make_fives(const Call* call, Bytes&, uint64_t at, U thread) {
  for (uint64_t j = at * kBytesOf + thread; j < (at + 1) * kBytesOf && j < fives_of(call->n); j += kThreads) {
    U byte = 0;
    for (uint64_t i = 5 * j; i < 5 * j + 5; ++i) byte = 3 * byte + (i < call->n ? call->codes[i] : 1);
    call->fives[j] = uint8_t(byte);
  }
}
// The start of the run that the next byte may continue: behind the last byte that is not kOnes.
DEV void last_own(const Call* call, Bytes& s, uint64_t at, U thread) {
  uint64_t last = 0;
  const uint64_t from = own_byte(at, thread);
  for (uint64_t j = from; j < from + kOwnBytes && j < fives_of(call->n); ++j)
    if (call->fives[j] != kOnes) last = j + 1;
  s.last.of[thread] = last;
}
DEV void last_rows(const Call*, Bytes& s, uint64_t, U thread) { put_rows<Largest>(s.last, thread); }
DEV void last_of_run(const Call* call, Bytes& s, uint64_t at, U thread) {
  if (thread == 0) call->groups[at] = all_of<Largest>(s.last);
}
KERNEL(tithe_fives, Bytes, PHASE(make_fives) PHASE(last_own) PHASE(last_rows) PHASE(last_of_run))
// One thread block: the start of the open run before each part.
DEV uint64_t first_of(const Call* call, U thread) {
  return parts_in(fives_of(call->n), kBytesOf) * thread / kThreads;
}
DEV void last_slice(const Call* call, Bytes& s, uint64_t, U thread) {
  uint64_t last = 0;
  for (uint64_t r = first_of(call, thread); r < first_of(call, thread + 1); ++r)
    last = max_(last, call->groups[r]);
  s.last.of[thread] = last;
}
DEV void last_before_runs(const Call* call, Bytes& s, uint64_t, U thread) {
  uint64_t last = before<Largest>(s.last, thread);
  for (uint64_t r = first_of(call, thread); r < first_of(call, thread + 1); ++r) {
    const uint64_t own = call->groups[r];
    call->groups[r] = last;
    last = max_(last, own);
  }
}
KERNEL(tithe_lasts, Bytes, PHASE(last_slice) PHASE(last_rows) PHASE(last_before_runs))
DEV uint64_t last_before(const Call* call, const Bytes& s, uint64_t at, U thread) {
  return max_(call->groups[at], before<Largest>(s.last, thread));
}
// The code of byte j, or of its run from `start` up to j; `ends` tells whether the run ends at j.
DEV U code_of(const Call* call, uint64_t j, uint64_t start, bool& ends) {
  const U byte = call->fives[j];
  ends = true;
  if (byte != kOnes) return byte;
  const U length = U((j - start) % kLongest) + 1;
  ends = length == kLongest || j + 1 == fives_of(call->n) || call->fives[j + 1] != kOnes;
  return length == 1 ? U(kOnes) : kFirstRun + length - 2;
}
DEV void count_codes(const Call* call, Bytes& s, uint64_t at, U thread) {
  uint64_t start = last_before(call, s, at, thread);
  const uint64_t from = own_byte(at, thread);
  U count = 0;
  for (uint64_t j = from; j < from + kOwnBytes && j < fives_of(call->n); ++j) {
    bool ends = false;
    code_of(call, j, start, ends);
    count += ends;
    if (call->fives[j] != kOnes) start = j + 1;
  }
  s.count.of[thread] = count;
}
DEV void count_rows(const Call*, Bytes& s, uint64_t, U thread) { put_rows<Adds>(s.count, thread); }
DEV void count_run(const Call* call, Bytes& s, uint64_t at, U thread) {
  if (thread == 0) call->keys[at] = all_of<Adds>(s.count);
}
KERNEL(tithe_codes, Bytes,
       PHASE(last_own) PHASE(last_rows) PHASE(count_codes) PHASE(count_rows) PHASE(count_run))
DEV void write_codes(const Call* call, Bytes& s, uint64_t at, U thread) {
  uint64_t start = last_before(call, s, at, thread);
  uint8_t* to = call->stream + call->places[at] + before<Adds>(s.count, thread);
  const uint64_t from = own_byte(at, thread);
  for (uint64_t j = from; j < from + kOwnBytes && j < fives_of(call->n); ++j) {
    bool ends = false;
    const U code = code_of(call, j, start, ends);
    if (ends) *to++ = uint8_t(code);
    if (call->fives[j] != kOnes) start = j + 1;
  }
}
KERNEL(tithe_write_codes, Bytes,
       PHASE(last_own) PHASE(last_rows) PHASE(count_codes) PHASE(count_rows) PHASE(write_codes))
DEV void slice_of_runs(const Call* call, Scan& s, uint64_t, U thread) {
  scan_slice(call->keys, parts_in(fives_of(call->n), kBytesOf), s, thread);
}
DEV void places_of_runs(const Call* call, Scan& s, uint64_t, U thread) {
  const uint64_t end =
      scan_places(call->keys, call->places, parts_in(fives_of(call->n), kBytesOf), s, thread);
  if (thread == kThreads - 1) *call->bytes = uint64_t(call->stream - call->payload) + end;
}
KERNEL(tithe_places, Scan, PHASE(slice_of_runs) PHASE(scan_before) PHASE(places_of_runs))

// ---- Decoding: the number of groups of five that each code represents
DEV uint64_t codes_in(const Call* call) {
  return call->payload_bytes - uint64_t(call->stream - call->payload);
}
DEV U fives_in(U code) { return code < kFirstRun ? 1 : code - kFirstRun + 2; }
DEV void count_fives(const Call* call, Bytes& s, uint64_t at, U thread) {
  U count = 0;
  const uint64_t from = own_byte(at, thread);
  for (uint64_t j = from; j < from + kOwnBytes && j < codes_in(call); ++j) count += fives_in(call->stream[j]);
  s.count.of[thread] = count;
}
KERNEL(tithe_count_fives, Bytes, PHASE(count_fives) PHASE(count_rows) PHASE(count_run))
DEV void slice_of_codes(const Call* call, Scan& s, uint64_t, U thread) {
  scan_slice(call->keys, parts_in(codes_in(call), kBytesOf), s, thread);
}
DEV void places_of_fives(const Call* call, Scan& s, uint64_t, U thread) {
  scan_places(call->keys, call->places, parts_in(codes_in(call), kBytesOf), s, thread);
}
KERNEL(tithe_places_of_fives, Scan, PHASE(slice_of_codes) PHASE(scan_before) PHASE(places_of_fives))
DEV void read_fives(const Call* call, Bytes& s, uint64_t at, U thread) {
  uint64_t to = call->places[at] + before<Adds>(s.count, thread);
  const uint64_t from = own_byte(at, thread);
  for (uint64_t j = from; j < from + kOwnBytes && j < codes_in(call); ++j) {
    const U code = call->stream[j];
    for (U k = 0; k < fives_in(code) && to < fives_of(call->n); ++k)
      call->fives[to++] = uint8_t(code < kFirstRun ? code : U(kOnes));
  }
}
KERNEL(tithe_read_fives, Bytes, PHASE(count_fives) PHASE(count_rows) PHASE(read_fives))
DEV U trit_at(const Call* call, uint64_t i) {
  static constexpr U powers[5] = {81, 27, 9, 3, 1};  // not in the memory of each thread
  return call->fives[i / 5] / powers[i % 5] % 3;
}
