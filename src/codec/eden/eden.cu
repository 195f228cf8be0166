// SPDX-License-Identifier: Apache-2.0
// Codec eden (eden.h) as CUDA kernels for one setting; follows the texts of lang/runtime/prelude_cuda_*.h. eden.cc
// prepends definitions: EDEN_BITS and EDEN_UNBIASED are the settings, EDEN_SIZES and EDEN_BORDERS their levels.
//
// A group of 32 threads works on one block. For the butterflies 1 to 16 apart, thread t holds values 32 t .. 32 t + 31
// in registers; for those 32 to 512 apart it holds values t, t + 32, ... Shared memory transposes between the two.
// A block of fewer than 1,024 values is zero from its width on, and skips butterflies of that distance and more.
// All roundings and their order are those of the reference, so bytes and residuals are equal.

enum {
  kBlock = 1024,
  kGroup = 32,
  kEachThread = 32,
  kHead = 10,
  kScaleBytes = 2,
  kMaxRaw = 4,
  kMinWidth = 8
};
const F kDust = 0x1p-100f, kMinEnergy = 0x1p-80f, kMaxEnergy = 0x1p120f;
const D kSteps = 2048, kLarge = EDEN_UNBIASED ? 0x1p100 : 0x1.8p127, kShrink = 0x1p-40;

// ---- Blocks

struct Block {
  uint64_t first, offset;  // in the chunk, and in the payload
  U values, width;         // width 0: sent uncompressed
};
DEV U code_bytes(U width) { return EDEN_BITS == 16 ? (width + 4) / 5 : width * EDEN_BITS / 8; }
DEV U block_bytes(const Block& b) { return b.width == 0 ? 4 * b.values : kScaleBytes + code_bytes(b.width); }
// The first block of the last `remain` values of a chunk, fewer than kBlock; see Block::at.
DEV void shape(Block& b, U remain) {
  b.values = remain;
  b.width = 0;
  if (remain <= kMaxRaw) return;
  U above = kMinWidth;
  while (above < remain) above *= 2;
  b.width = above == kMinWidth || 4 * remain > 3 * above ? above : above / 2;
  b.values = min_(remain, b.width);
}
DEV Block block_at(uint64_t n, uint64_t place) {
  const uint64_t whole = n / kBlock, before = place < whole ? place : whole;
  Block b = {before * kBlock, kHead + before * (kScaleBytes + code_bytes(kBlock)), kBlock, kBlock};
  if (place < whole) return b;
  U remain = U(n % kBlock);
  shape(b, remain);
  for (uint64_t k = whole; k < place; ++k) {
    b.first += b.values;
    b.offset += block_bytes(b);
    remain -= b.values;
    shape(b, remain);
  }
  return b;
}
// At least 1: the first position also writes the head.
DEV uint64_t places_of(uint64_t n) {
  uint64_t places = n / kBlock;
  for (U remain = U(n % kBlock); remain > 0; ++places) {
    Block b = {};
    shape(b, remain);
    remain -= b.values;
  }
  return places == 0 ? 1 : places;
}

// ---- Levels and codes

DEV int level_of_code(U code) {
  if (EDEN_BITS == 16) return code == 2 ? -1 : int(code);
  const U minus = 1U << ((EDEN_BITS - 1) & 7), number = code & (minus - 1);
  const int sizes[] = {EDEN_SIZES};
  int size = sizes[0];
  ALL for (U k = 1; k < sizeof sizes / sizeof sizes[0]; ++k) size = number == k ? sizes[k] : size;
  return (code & minus) != 0 ? -size : size;
}
DEV U code_of(int steps) {
  const int borders[] = {EDEN_BORDERS 255}, cell = min_((steps < 0 ? ~steps : steps) / 64, 254);
  U number = 0;
  ALL for (U k = 0; k < sizeof borders / sizeof borders[0]; ++k) number += cell >= borders[k];
  if (EDEN_BITS == 16) return steps < 0 ? 2 * number : number;
  return number | (steps < 0 ? 1U << ((EDEN_BITS - 1) & 7) : 0U);
}
enum { kWholeField = EDEN_BITS == 16 || EDEN_BITS == 3 ? 1 : EDEN_BITS };  // of 1, 2 and 4 bits
// A field of kField bits takes width kField / 8 bytes: code i is in byte i mod bytes, from bit kField (i / bytes) on.
template <int kField>
DEV U field_at(const uint8_t* codes, U width, U i) {
  const U bytes = width * kField / 8;
  const U round = width == kBlock ? i / (kBlock * kField / 8) : i / bytes;
  return codes[i - round * bytes] >> (kField * round) & ((1U << kField) - 1);
}
DEV U code_at_value(const uint8_t* codes, U width, U i) {
  if (EDEN_BITS == 16) {
    const U bytes = code_bytes(width), round = i / bytes;
    const U power = round == 0 ? 1 : round == 1 ? 3 : round == 2 ? 9 : round == 3 ? 27 : 81;
    return codes[i - round * bytes] / power % 3;
  }
  if (EDEN_BITS == 3) return field_at<2>(codes, width, i) | field_at<1>(codes + width / 4, width, i) << 2;
  return field_at<kWholeField>(codes, width, i);
}
// The bytes of the field that starts at bit `from` of each code.
template <int kField>
DEV void pack_field(const uint8_t* codes, U width, int from, uint8_t* to, U thread) {
  const U bytes = width * kField / 8;
  for (U b = thread; b < bytes; b += kGroup) {
    U byte = 0;
    ALL for (int k = 0; k < 8 / kField; ++k) byte |= (codes[b + k * bytes] >> from & ((1U << kField) - 1))
                                                     << (kField * k);
    to[b] = uint8_t(byte);
  }
}
DEV void pack_codes(const uint8_t* codes, U width, uint8_t* to, U thread) {
  if (EDEN_BITS == 16) {
    const U bytes = code_bytes(width);
    for (U b = thread; b < bytes; b += kGroup) {
      U byte = 0, power = 1;
      for (U i = b; i < width; i += bytes, power *= 3) byte += codes[i] * power;
      to[b] = uint8_t(byte);
    }
  } else if (EDEN_BITS == 3) {
    pack_field<2>(codes, width, 0, to, thread);
    pack_field<1>(codes, width, 2, to + width / 4, thread);
  } else {
    pack_field<kWholeField>(codes, width, 0, to, thread);
  }
}

// ---- The rotation

DEV U padded(U i) { return i + i / 32; }  // each row of 32 values starts at another bank
DEV U row_value(U thread, int k) { return kEachThread * thread + k; }
DEV U column_value(U thread, int k) { return kGroup * k + thread; }
// Butterflies over values `half` apart in the thread's 32 registers, which are apart * half values apart in the
// block.
DEV void butterflies(F* x, U apart, U width) {
  ALL for (int half = 1; half < kEachThread; half *= 2) {
    if (half * apart < width) {
      ALL for (int k = 0; k < kEachThread; ++k) {
        if ((k & half) != 0) continue;
        const F a = x[k], b = x[k + half];
        x[k] = add(a, b);
        x[k + half] = sub(a, b);
      }
    }
  }
}
DEV F turned(F v, U signs, U i) { return float_(bits_(v) ^ (signs >> (i & 31) & 1) << 31); }
DEV U signs_of(uint64_t key, uint64_t value) { return draw(key, value / 32, 32); }

// ---- Encode

struct Sent {
  F taken[kBlock], x[kBlock + kBlock / 32], lanes[kLanes];
  int64_t with_values[kGroup];
  U peaks[kGroup], with_itself[kGroup];
  D norm;
  F energy, lift, steps_per_unit, scale;
  U codes_follow;  // whether the block has a scale above 0
  uint8_t codes[kBlock];
};

DEV void take(const Call* call, Sent& s, uint64_t at, U thread) {
  const Block b = block_at(call->n, at);
  if (at == 0 && thread == 0) {
    put(call->payload, U(call->shared_key), 4);
    put(call->payload + 4, U(call->shared_key >> 32), 4);
    call->payload[8] = EDEN_BITS;
    call->payload[9] = 0;
    const Block last = block_at(call->n, places_of(call->n) - 1);
    *call->bytes = last.offset + block_bytes(last);
  }
  U peak = 0;
  ALL for (int k = 0; k < kEachThread; ++k) {
    const U i = column_value(thread, k);
    const F v = i < b.values ? taken(call, b.first + i) : 0;
    s.taken[i] = v;
    peak = max_(peak, bits_(v) & 0x7fffffffU);
  }
  s.peaks[thread] = peak;
}
// Sums of squares in the order of base/fold.h.
DEV void add_squares(Sent& s, F lift, U thread) {
  if (thread >= kLanes) return;
  F sum = 0;
  ALL for (int k = 0; k < kBlock / kLanes; ++k) {
    const F v = mul(s.taken[k * kLanes + thread], lift);
    sum = add(sum, mul(v, v));
  }
  s.lanes[thread] = sum;
}
DEV void square(const Call*, Sent& s, uint64_t, U thread) { add_squares(s, 1, thread); }
DEV void judge(const Call* call, Sent& s, uint64_t, U thread) {
  if (thread != 0) return;
  U peak = 0;
  for (int k = 0; k < kGroup; ++k) peak = max_(peak, s.peaks[k]);
  if (peak >= 0x7f800000U) say(call, 0);
  s.codes_follow = peak < 0x7f800000U && float_(peak) >= kDust;
  s.energy = total_of(s.lanes);
  s.lift = 1;
  if (!(s.energy >= kMinEnergy && s.energy <= kMaxEnergy) && s.codes_follow)
    s.lift = float_(U(127 + clamp_(127 - int(peak >> 23), -120, 100)) << 23);
}
DEV void square_lifted(const Call*, Sent& s, uint64_t, U thread) {
  if (s.lift != 1) add_squares(s, s.lift, thread);
}
DEV void rotate_rows(const Call* call, Sent& s, uint64_t at, U thread) {
  const Block b = block_at(call->n, at);
  if (thread == 0) {
    const D norm = sqrt_(D(s.lift == 1 ? s.energy : total_of(s.lanes)));
    s.steps_per_unit = s.codes_follow ? F(div_(kSteps, norm)) : 0;
    s.norm = div_(norm, D(s.lift));
  }
  const U signs = signs_of(call->shared_key, b.first + row_value(thread, 0)) >> (b.first & 31);
  F x[kEachThread];
  ALL for (int k = 0; k < kEachThread; ++k) {
    const U i = row_value(thread, k);
    const F v = mul(s.taken[i], s.lift);
    x[k] = i < b.values ? turned(v, signs, k) : v;
  }
  butterflies(x, 1, b.width);
  ALL for (int k = 0; k < kEachThread; ++k) s.x[padded(row_value(thread, k))] = x[k];
}
DEV void quantise(const Call* call, Sent& s, uint64_t at, U thread) {
  const Block b = block_at(call->n, at);
  F x[kEachThread];
  ALL for (int k = 0; k < kEachThread; ++k) x[k] = s.x[padded(column_value(thread, k))];
  butterflies(x, kGroup, b.width);
  int64_t with_values = 0;
  U with_itself = 0;
  ALL for (int k = 0; k < kEachThread; ++k) {
    const U i = column_value(thread, k);
    const int steps = int(clamp_(round_(mul(x[k], s.steps_per_unit)), -32768.0f, 32767.0f));
    const U code = i < b.width && s.codes_follow ? code_of(steps) : 0;
    const int level = i < b.width && s.codes_follow ? level_of_code(code) : 0;
    s.codes[i] = uint8_t(code);
    s.x[padded(i)] = F(level);
    with_values += steps * level;
    with_itself += U(level * level);
  }
  s.with_values[thread] = with_values;
  s.with_itself[thread] = with_itself;
}
DEV U bf16_of(F v) {
  const U bits = bits_(v), size = bits & 0x7fffffffU;
  return (bits >> 16 & 0x8000U) | min_(size + 0x7fffU + (size >> 16 & 1U) >> 16, 0x7f7fU);
}
DEV U scale_bits(const Call* call, const Sent& s, const Block& b) {
  int64_t products = 0, squares = 0;
  for (int k = 0; k < kGroup; ++k) {
    products += s.with_values[k];
    squares += s.with_itself[k];
  }
  const D with_values = div_(mul(s.norm, D(products)), kSteps), energy = mul(D(b.width), D(squares));
  const D ideal = EDEN_UNBIASED ? div_(mul(s.norm, s.norm), with_values) : div_(with_values, energy);
  const F scale = F(s.norm > kLarge ? mul(ideal, kShrink) : ideal);
  if (!EDEN_UNBIASED) return bf16_of(scale);
  return (bits_(scale) + (draw(call->key, b.first / kMinWidth, 32) >> 16)) >> 16;
}
DEV void send(const Call* call, Sent& s, uint64_t at, U thread) {
  const Block b = block_at(call->n, at);
  uint8_t* const to = call->payload + b.offset;
  if (b.width == 0) {
    if (thread < b.values) put(to + 4 * thread, bits_(s.taken[thread]), 4);
    return;
  }
  pack_codes(s.codes, b.width, to + kScaleBytes, thread);
  if (thread != 0) return;
  const U scale = s.codes_follow ? scale_bits(call, s, b) & 0xffffU : 0;
  put(to, scale, kScaleBytes);
  s.scale = float_(scale << 16);
}
DEV void rotate_rows_back(const Call* call, Sent& s, uint64_t at, U thread) {
  const Block b = block_at(call->n, at);
  if (call->left == nullptr || b.width == 0) return;
  F x[kEachThread];
  ALL for (int k = 0; k < kEachThread; ++k) x[k] = add(0.0f, mul(s.scale, s.x[padded(row_value(thread, k))]));
  butterflies(x, 1, b.width);
  ALL for (int k = 0; k < kEachThread; ++k) s.x[padded(row_value(thread, k))] = x[k];
}
DEV void leave(const Call* call, Sent& s, uint64_t at, U thread) {
  const Block b = block_at(call->n, at);
  if (call->left == nullptr) return;
  if (b.width == 0 || !s.codes_follow) {
    for (U i = thread; i < b.values; i += kGroup)
      call->left[b.first + i] = sub(s.taken[i], b.width == 0 ? s.taken[i] : 0.0f);
    return;
  }
  F x[kEachThread];
  ALL for (int k = 0; k < kEachThread; ++k) x[k] = s.x[padded(column_value(thread, k))];
  butterflies(x, kGroup, b.width);
  ALL for (int k = 0; k < kEachThread; ++k) {
    const U i = column_value(thread, k);
    if (i >= b.values) continue;
    const F sent = turned(x[k], signs_of(call->shared_key, b.first + i), U(b.first + i));
    call->left[b.first + i] = sub(s.taken[i], sent);
  }
}
GROUPS(eden_encode, Sent, kGroup, places_of,
       PHASE(take) PHASE(square) PHASE(judge) PHASE(square_lifted) PHASE(rotate_rows) PHASE(quantise)
           PHASE(send) PHASE(rotate_rows_back) PHASE(leave))

// ---- Decode: sums agreed_ranks payloads of payload_bytes each, which the host has checked, and rotates the sum

struct Received {
  F x[kBlock + kBlock / 32];
};
DEV uint64_t key_of(const Call* call) {
  return get(call->payload, 4) | uint64_t(get(call->payload + 4, 4)) << 32;
}
DEV void add_payloads(const Call* call, Received& s, uint64_t at, U thread) {
  const Block b = block_at(call->n, at);
  F x[kEachThread] = {};
  for (U p = 0; p < call->agreed_ranks && b.width != 0; ++p) {
    const uint8_t* const from = call->payload + p * call->payload_bytes + b.offset;
    const F scale = float_(get(from, kScaleBytes) << 16);
    ALL for (int k = 0; k < kEachThread; ++k) {
      const U i = column_value(thread, k);
      if (i < b.width)
        x[k] = add(x[k], mul(scale, F(level_of_code(code_at_value(from + kScaleBytes, b.width, i)))));
    }
  }
  ALL for (int k = 0; k < kEachThread; ++k) s.x[padded(column_value(thread, k))] = x[k];
}
DEV void rotate_sum(const Call* call, Received& s, uint64_t at, U thread) {
  F x[kEachThread];
  ALL for (int k = 0; k < kEachThread; ++k) x[k] = s.x[padded(row_value(thread, k))];
  butterflies(x, 1, block_at(call->n, at).width);
  ALL for (int k = 0; k < kEachThread; ++k) s.x[padded(row_value(thread, k))] = x[k];
}
DEV void store(const Call* call, uint64_t i, F v) {
  call->out[i] = call->base == nullptr ? v : add(call->base[i], v);
}
DEV void store_sum(const Call* call, Received& s, uint64_t at, U thread) {
  const Block b = block_at(call->n, at);
  if (b.width == 0) {
    if (thread >= b.values) return;
    const uint8_t* from = call->payload + b.offset + 4 * thread;
    F sum = float_(get(from, 4));
    for (U p = 1; p < call->agreed_ranks; ++p) sum = add(sum, float_(get(from += call->payload_bytes, 4)));
    return store(call, b.first + thread, sum);
  }
  F x[kEachThread];
  ALL for (int k = 0; k < kEachThread; ++k) x[k] = s.x[padded(column_value(thread, k))];
  butterflies(x, kGroup, b.width);
  const uint64_t key = key_of(call);
  ALL for (int k = 0; k < kEachThread; ++k) {
    const U i = column_value(thread, k);
    if (i < b.values) store(call, b.first + i, turned(x[k], signs_of(key, b.first + i), U(b.first + i)));
  }
}
GROUPS(eden_decode, Received, kGroup, places_of, PHASE(add_payloads) PHASE(rotate_sum) PHASE(store_sum))

// ---- Launches

enum { kAnswers = 1 };
API uint64_t tithe_scratch(const Call*) { return 0; }
DEV uint64_t grid_of(const Call* call) { return parts_in(places_of(call->n), kThreads / kGroup); }
API void tithe_encode(const Call* call, Stream stream) { LAUNCH(eden_encode, grid_of(call)); }
PLAN(tithe_plan_encode, tithe_scratch, tithe_encode)
API void tithe_decode(const Call* call, Stream stream) { LAUNCH(eden_decode, grid_of(call)); }
PLAN(tithe_plan_decode, tithe_scratch, tithe_decode)
