// SPDX-License-Identifier: Apache-2.0
// Prelude of kernels for programs that send pairs (emit_cuda_lists.h): radix selection of a key, and lists, which are
// counted, scanned and written.

enum { kLine = 16, kRunOf = 1024, kOwn = kRunOf / kThreads, kDigits = 256 };
// Keys: 0 for a value that may not be sent, else one more than its magnitude's bits.
struct State {
  U wanted;      // whether the rank-th largest of `keys` keys is being selected
  U round;       // number of its digits known so far
  U prefix;      // these digits
  U least;       // values with larger keys are sent,
  U ties;        // and the first `ties` values with this key
  U total;       // number of values that may be sent
  U more, same;  // number of values with larger keys, and with this key
  uint64_t keys, rank;
  U hist[kDigits];
};

// ---- A sample of the values (codec/shared/sparse/select.h)
DEV uint64_t sample_lines(uint64_t n, D ratio, D share) {
  const D values = D(n), few = div_(32.0, ratio), many = div_(128.0, ratio);
  const D want = min_(values, max_(few, min_(mul(share, values), many)));
  const uint64_t lines = uint64_t(ceil(want / kLine));
  return 2 * lines >= n / kLine ? 0 : lines;  // 0: all values
}
DEV uint64_t sample_line(uint64_t n, uint64_t lines, uint64_t key, uint64_t j) {
  const uint64_t total = n / kLine, low = j * total / lines, high = (j + 1) * total / lines;
  const uint64_t draw32 = mixed(U(key) ^ mixed(U(j) ^ U(key >> 32)));
  return kLine * (low + (draw32 * (high - low) >> 32));
}
DEV uint64_t sample_rank(uint64_t n, uint64_t lines, D ratio) {
  if (lines == 0) {
    const D k = ceil(mul(ratio, D(n)));
    return n == 0 ? 0 : k >= D(n) ? n : k < 1 ? 1 : uint64_t(k);
  }
  const uint64_t count = lines * kLine;
  const D rank = floor(add(mul(ratio, D(count)), 0.5));
  return rank < 1 ? 1 : rank > D(count) ? count : uint64_t(rank);
}
DEV uint64_t at_most(D v, uint64_t otherwise) {
  return v > 0 ? uint64_t(v < D(otherwise) ? v : D(otherwise)) : 0;
}

// ---- Radix selection of the rank-th largest key, eight bits at a time
DEV void want(State* state, uint64_t keys, uint64_t rank) {
  state->wanted = rank > 0;
  state->round = state->prefix = 0;
  state->keys = keys;
  state->rank = rank;
  state->least = 0xffffffffU;
  state->ties = 0;
  for (int d = 0; d < kDigits; ++d) state->hist[d] = 0;
}
struct Digits {
  U hist[kDigits], row[kLanes];
};
DEV void no_digits(const Call*, Digits& s, uint64_t, U thread) {
  for (U d = thread; d < kDigits; d += kThreads) s.hist[d] = 0;
}
DEV void count_digits(const Call* call, Digits& s, uint64_t at, U thread) {
  const State* const state = call->state;
  if (!state->wanted) return;
  for (uint64_t i = at * kRunOf + thread; i < (at + 1) * kRunOf && i < state->keys; i += kThreads) {
    const U key = call->keys[i];
    if (key != 0 && uint64_t(key) >> (32 - 8 * state->round) == state->prefix)
      atomic_add(&s.hist[key >> (24 - 8 * state->round) & 255], 1);
  }
}
DEV void add_digits(const Call* call, Digits& s, uint64_t, U thread) {
  if (!call->state->wanted) return;
  for (U d = thread; d < kDigits; d += kThreads)
    if (s.hist[d] != 0) atomic_add(&call->state->hist[d], s.hist[d]);
}
KERNEL(tithe_digits, Digits, PHASE(no_digits) PHASE(count_digits) PHASE(add_digits))
DEV void take_digits(const Call* call, Digits& s, uint64_t, U thread) {
  for (U d = thread; d < kDigits; d += kThreads) {
    s.hist[d] = call->state->hist[d];
    call->state->hist[d] = 0;
  }
}
DEV void add_rows(const Call*, Digits& s, uint64_t, U thread) {
  if (thread >= kLanes) return;
  U all = 0;
  for (U d = kLanes * thread; d < kLanes * (thread + 1); ++d) all += s.hist[d];
  s.row[thread] = all;
}
DEV void choose_digit(const Call* call, Digits& s, uint64_t, U thread) {
  State* const state = call->state;
  if (thread != 0 || !state->wanted) return;
  uint64_t rank = state->rank;
  U row = kLanes - 1;
  for (; row > 0 && s.row[row] < rank; --row) rank -= s.row[row];
  U digit = kLanes * row + kLanes - 1;
  for (; digit > kLanes * row && s.hist[digit] < rank; --digit) rank -= s.hist[digit];
  state->rank = rank;
  state->prefix = state->prefix << 8 | digit;
  if (++state->round < 4) return;
  state->least = state->prefix;
  state->ties = U(state->rank);
  state->wanted = 0;
}
KERNEL(tithe_digit, Digits, PHASE(take_digits) PHASE(add_rows) PHASE(choose_digit))
HOST void select_key(const Call* call, uint64_t runs, Stream stream) {
  for (int round = 0; round < 4; ++round) {
    LAUNCH(tithe_digits, runs);
    LAUNCH(tithe_digit, 1);
  }
}
DEV void all_go(const Call* call, Digits&, uint64_t, U thread) {
  State* const state = call->state;
  if (thread != 0) return;
  state->wanted = state->total = 0;
  state->least = 1;
  state->ties = 0xffffffffU;
}
KERNEL(tithe_all_go, Digits, PHASE(all_go))

// ---- Counts of each thread's values, then a scan
struct Tally {
  Rows<U> more, same;
};
DEV void count_own(const Call* call, Tally& s, uint64_t at, U thread) {
  U more = 0, same = 0;
  const uint64_t from = at * kRunOf + thread * kOwn;
  for (uint64_t i = from; i < from + kOwn && i < call->n; ++i) {
    more += call->keys[i] > call->state->least;
    same += call->keys[i] == call->state->least;
  }
  s.more.of[thread] = more;
  s.same.of[thread] = same;
}
DEV void tally_rows(const Call*, Tally& s, uint64_t, U thread) {
  put_rows<Adds>(s.more, thread);
  put_rows<Adds>(s.same, thread);
}
DEV void tally_run(const Call* call, Tally& s, uint64_t at, U thread) {
  if (thread == 0) call->tally[2 * at] = all_of<Adds>(s.more);
  if (thread == 1) call->tally[2 * at + 1] = all_of<Adds>(s.same);
}
KERNEL(tithe_tally, Tally, PHASE(count_own) PHASE(tally_rows) PHASE(tally_run))
// One thread block: each thread handles a slice of the runs.
DEV uint64_t first_run(const Call* call, U thread) { return parts_in(call->n, kRunOf) * thread / kThreads; }
DEV void scan_own(const Call* call, Tally& s, uint64_t, U thread) {
  U more = 0, same = 0;
  UNROLL for (uint64_t r = first_run(call, thread); r < first_run(call, thread + 1); ++r) {
    more += call->tally[2 * r];
    same += call->tally[2 * r + 1];
  }
  s.more.of[thread] = more;
  s.same.of[thread] = same;
}
DEV void scan_runs(const Call* call, Tally& s, uint64_t, U thread) {
  U more = before<Adds>(s.more, thread), same = before<Adds>(s.same, thread);
  for (uint64_t r = first_run(call, thread); r < first_run(call, thread + 1); ++r) {
    const U more_own = call->tally[2 * r], same_own = call->tally[2 * r + 1];
    call->tally[2 * r] = more;
    call->tally[2 * r + 1] = same;
    more += more_own;
    same += same_own;
  }
  if (thread != kThreads - 1) return;
  State* const state = call->state;
  state->more = more;
  state->same = same;
  const U count = more + min_(same, state->ties);
  put(call->payload, count, 4);
  *call->bytes = 4 + 8 * uint64_t(count);
}
KERNEL(tithe_scan, Tally, PHASE(scan_own) PHASE(tally_rows) PHASE(scan_runs))
DEV void write_own(const Call* call, Tally& s, uint64_t at, U thread) {
  const State* const state = call->state;
  const uint64_t count = state->more + min_(state->same, state->ties);
  U more = call->tally[2 * at] + before<Adds>(s.more, thread);
  U same = call->tally[2 * at + 1] + before<Adds>(s.same, thread);
  const uint64_t from = at * kRunOf + thread * kOwn;
  for (uint64_t i = from; i < from + kOwn && i < call->n; ++i) {
    const U key = call->keys[i];
    const F x = taken(call, i);
    const bool goes = key > state->least || (key == state->least && same < state->ties);
    if (goes) {
      const uint64_t place = more + min_(same, state->ties);
      put(call->payload + 4 + 4 * place, U(i), 4);
      put(call->payload + 4 + 4 * (count + place), raw(x), 4);
    }
    more += key > state->least;
    same += key == state->least;
    if (call->left != nullptr) call->left[i] = goes ? 0.0f : x;
  }
}
KERNEL(tithe_write, Tally, PHASE(count_own) PHASE(tally_rows) PHASE(write_own))

// ---- Hash tables (codec/dragonn/dragonn.h)
DEV U hashed_to(U index, U key, U slots) {
  U h = index ^ key;
  h ^= h >> 16;
  h *= 0x85ebca6bU;
  h ^= h >> 13;
  h *= 0xc2b2ae35U;
  h ^= h >> 16;
  return U(uint64_t(h) * slots >> 32);
}

// ---- Decoding a list
DEV void copy_base(const Call* call, Digits&, uint64_t at, U thread) {
  for (uint64_t i = at * kRunOf + thread; i < (at + 1) * kRunOf && i < call->n; i += kThreads)
    call->out[i] = call->base == nullptr ? 0.0f : call->base[i];
}
KERNEL(tithe_base, Digits, PHASE(copy_base))
DEV void scatter(const Call* call, Digits&, uint64_t at, U thread) {
  const uint64_t count = (call->payload_bytes - 4) / 8;
  for (uint64_t j = at * kRunOf + thread; j < (at + 1) * kRunOf && j < count; j += kThreads) {
    F* const to = call->out + get(call->payload + 4 + 4 * j, 4);
    *to = add(*to, float_(get(call->payload + 4 + 4 * (count + j), 4)));
  }
}
KERNEL(tithe_scatter, Digits, PHASE(scatter))
