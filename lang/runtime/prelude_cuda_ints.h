// SPDX-License-Identifier: Apache-2.0
// Prelude of kernels for int fields (int_sum/int_fields.h): one thread writes one word.

// Bytes before the words; words per thread block.
enum { kIntHead = 4, kWordsOf = 8 * kThreads };
DEV uint64_t words_of(uint64_t n, U bits) {
  const uint64_t group = kLanes * (32 / bits), rest = n % group;
  return n / group * kLanes + (rest < kLanes ? rest : uint64_t(kLanes));
}
// Number i of a payload.
DEV U int_at(const Call* call, uint64_t i) {
  const U bits = call->field_bits, fields = 32 / bits;
  const uint64_t word = i / (kLanes * fields) * kLanes + i % kLanes;
  return get(call->payload + kIntHead + 4 * word, 4) >> bits * U(i / kLanes % fields) & ((U(1) << bits) - 1);
}
template <class Shared>
DEV void write_words(const Call* call, Shared&, uint64_t at, U thread) {
  const U bits = call->field_bits, fields = 32 / bits;
  if (at == 0 && thread == 0) put(call->payload, 1 | bits << 16, kIntHead);
  const uint64_t words = words_of(call->n, bits);
  for (uint64_t w = at * kWordsOf + thread; w < words && w < (at + 1) * kWordsOf; w += kThreads) {
    const uint64_t first = w / kLanes * kLanes * fields + w % kLanes;
    U word = 0;
    for (U k = 0; k < fields && first + k * kLanes < call->n; ++k)
      word |= call->ints[first + k * kLanes] << bits * k;
    put(call->payload + kIntHead + 4 * w, word, 4);
  }
}
